// A kubeconfig file.
#include "fuzz.h"
#include "kubeconfig.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const elasticdl::fuzz::MemoryFile file(elasticdl::fuzz::ToText(data, size));
  static_cast<void>(elasticdl::kube::LoadKubeconfig({file.path()}, "").ok());
  static_cast<void>(elasticdl::kube::LoadKubeconfig({file.path()}, "dev").ok());
  return 0;
}
