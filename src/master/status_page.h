// The status page: one self-contained HTML document without outside parts.
#pragma once

#include "absl/strings/string_view.h"

namespace elasticdl::master {

absl::string_view StatusPage();

}  // namespace elasticdl::master
