#include "large_array.h"

#include <malloc.h>
#include <sys/mman.h>

namespace elasticdl::worker {
namespace {

// Smaller ones are well served by malloc.
constexpr size_t kLeastBytes = 4 << 20;
constexpr size_t kHugePage = 2 << 20;

}  // namespace

torch::Tensor MakeArray(int64_t floats, c10::Device device) {
  const auto options = torch::TensorOptions(torch::kFloat32).device(device);
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (!device.is_cpu() || bytes < kLeastBytes) {
    return torch::empty({floats}, options);
  }
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // One page more, so that it can begin at a multiple of a huge page.
  void* mapped = mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return torch::empty({floats}, options);
  char* begin = static_cast<char*>(mapped);
  const size_t before =
      (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  begin += before;
  if (before < kHugePage) munmap(begin + whole, kHugePage - before);
  // If it is refused, small pages do.
  madvise(begin, whole, MADV_HUGEPAGE);
  return torch::from_blob(
      begin, {floats}, [whole](void* data) { munmap(data, whole); }, options);
}

void TrimMemory() { malloc_trim(0); }

}  // namespace elasticdl::worker
