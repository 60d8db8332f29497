// Files of a checkpoint: tensors (also those of the Python ElasticDL) and the
// manifest.
#include "elasticdl/v1/ledger.pb.h"
#include "fuzz.h"
#include "layout.h"
#include "wire.h"

namespace elasticdl::checkpoint::internal {
namespace {

void Run(absl::string_view bytes) {
  const auto model = ParseModel(bytes, "fuzz");
  if (model.ok()) {
    for (const NamedTensor& tensor : model->dense_parameters) {
      ELASTICDL_CHECK(ExpectedBytes(tensor) ==
                      static_cast<int64_t>(tensor.bytes.size()));
      static_cast<void>(EncodeTensorHeader(tensor));
    }
  }
  const auto manifest = ParseManifest(bytes, "fuzz");
  if (manifest.ok()) {
    const auto again = ParseManifest(FormatManifest(*manifest), "again");
    ELASTICDL_CHECK(again.ok());
    ELASTICDL_CHECK(again->version == manifest->version);
    ELASTICDL_CHECK(again->files.size() == manifest->files.size());
  }
}

}  // namespace
}  // namespace elasticdl::checkpoint::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::checkpoint::internal::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
