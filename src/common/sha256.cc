#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/hash.h"

namespace elasticdl {

struct Sha256::Context {
  EVP_MD_CTX* const evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // Fails only without memory.
  ELASTICDL_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(absl::string_view data) {
  EVP_DigestUpdate(context_->evp, data.data(), data.size());
}

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_->evp, digest, &size);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Hex(absl::string_view data) {
  Sha256 hash;
  hash.Add(data);
  return hash.Hex();
}

}  // namespace elasticdl
