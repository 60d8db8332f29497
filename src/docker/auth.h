// The user's credentials for image registries, from ~/.docker/config.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace elasticdl::docker {

// Thread-compatible. What `docker login` has stored.
class RegistryAuth {
 public:
  // Reads <config_dir>/config.json; a missing file is an empty one. `path` (the
  // value of PATH) is where docker-credential-* programs are looked for.
  // INVALID_ARGUMENT: the file is not JSON.
  static absl::StatusOr<RegistryAuth> Read(const std::string& config_dir,
                                           const std::string& path);
  ~RegistryAuth();
  RegistryAuth(RegistryAuth&&) noexcept;
  RegistryAuth& operator=(RegistryAuth&&) noexcept;

  // The header X-Registry-Auth for `registry` ("docker.io", "gcr.io",
  // "localhost:5000"); an empty object when there are no credentials.
  absl::StatusOr<std::string> PushHeader(const std::string& registry) const;
  // For which registries there are credentials, in the words of `docker login`
  // ("https://index.docker.io/v1/", "gcr.io").
  std::vector<std::string> Servers() const;
  // The body of a login at one of them; NOT_FOUND: there are no credentials.
  // A credential helper may take this long.
  absl::StatusOr<std::string> LoginBody(const std::string& server,
                                        absl::Duration timeout) const;
  // The header X-Registry-Config with all credentials, for the base images of a
  // build. Those that a helper does not return are left out.
  std::string BuildHeader() const;

 private:
  RegistryAuth();
  absl::StatusOr<nlohmann::json> Find(const std::string& server,
                                      absl::Duration timeout) const;

  std::unique_ptr<nlohmann::json> config_;
  std::string path_;
};

}  // namespace elasticdl::docker
