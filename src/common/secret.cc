#include "elasticdl/common/secret.h"

#include <cstddef>

namespace elasticdl {

bool SecretsEqual(absl::string_view a, absl::string_view b) {
  if (a.empty() || a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace elasticdl
