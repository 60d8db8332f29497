// Certificates that live as long as a test.
#pragma once

#include <string>

namespace elasticdl::kube::test {

struct KeyPair {
  std::string cert_pem;
  std::string key_pem;
};

// An authority of its own.
KeyPair MakeAuthority(const std::string& name);

// Signed by `authority`, good for server and client. `alternatives` as openssl
// writes them: "IP:127.0.0.1,DNS:kubernetes".
KeyPair MakeCertificate(const KeyPair& authority, const std::string& name,
                        const std::string& alternatives);

}  // namespace elasticdl::kube::test
