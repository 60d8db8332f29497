#include "elasticdl/common/secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstddef>

#include "elasticdl/common/check.h"

namespace elasticdl {

bool SecretsEqual(absl::string_view a, absl::string_view b) {
  if (a.empty() || a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

std::string Mac(absl::string_view secret, absl::string_view text) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           mac, &size);
  ELASTICDL_CHECK(made != nullptr && size == kMacBytes);
  return std::string(reinterpret_cast<char*>(mac), size);
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // Up to 256 bytes come whole.
  ELASTICDL_CHECK(getrandom(bytes.data(), count, 0) ==
                  static_cast<ssize_t>(count));
  return bytes;
}

}  // namespace elasticdl
