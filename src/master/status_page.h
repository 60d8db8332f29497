// The status page: one HTML document that loads nothing from elsewhere.
#pragma once

#include "absl/strings/string_view.h"

namespace elasticdl::master {

absl::string_view StatusPage();

}  // namespace elasticdl::master
