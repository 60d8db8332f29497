// Comparing secrets.
#pragma once

#include "absl/strings/string_view.h"

namespace elasticdl {

// Takes the same time wherever the two differ, so that nobody can find a secret
// byte by byte. An empty secret equals nothing, itself included: what was never
// set lets nobody in.
bool SecretsEqual(absl::string_view a, absl::string_view b);

}  // namespace elasticdl
