// The build context: which files of a folder a build sends to the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::docker {

struct ContextOptions {
  // The folder to build from.
  std::string folder;
  // A file on this machine; it need not be below `folder`.
  std::string dockerfile;
  // If not empty, the Dockerfile itself; `dockerfile` is then not read.
  std::string dockerfile_text;
};

struct ContextEntry {
  enum class Type { kFile, kFolder, kLink };
  // Relative to the context, '/' between parts.
  std::string name;
  Type type = Type::kFile;
  // Permission bits.
  uint32_t mode = 0644;
  int64_t size = 0;
  // Seconds since 1970.
  int64_t modified = 0;
  // Of a link: where it points.
  std::string target;
  // Of a file: where it is read from, when it is sent; "" = from `content`.
  std::string path;
  std::string content;
};

struct BuildContext {
  // A folder comes before its content.
  std::vector<ContextEntry> entries;
  // The Dockerfile's name among them.
  std::string dockerfile;
  int64_t num_files = 0;
  int64_t bytes = 0;
};

// Lists the files to send, without reading them: all that .dockerignore does
// not exclude, and always the Dockerfile and .dockerignore. A Dockerfile from
// elsewhere gets another name, which COPY does not see. Links are sent as
// links; sockets, pipes and devices are left out. NOT_FOUND: no folder or no
// Dockerfile; INVALID_ARGUMENT: bad .dockerignore.
absl::StatusOr<BuildContext> ReadContext(const ContextOptions& options);

// SHA-256 in hex of all names, modes, links and contents, not of times: the
// same content gives the same hash on every machine.
absl::StatusOr<std::string> HashContext(const BuildContext& context);

}  // namespace elasticdl::docker
