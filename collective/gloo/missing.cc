// Stands in for the Gloo backend where the library is not installed.
#include "core/backends.h"

namespace elasticdl::collective {

absl::StatusOr<std::unique_ptr<Connector>> BeginGloo(const WorldSpec&,
                                                     const std::string&) {
  return absl::UnimplementedError(
      "collective backend gloo: this program was built without Gloo (install "
      "libgloo-dev and build again, or use tcp)");
}

}  // namespace elasticdl::collective
