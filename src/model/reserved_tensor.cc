#include "reserved_tensor.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace elasticdl::model {
namespace {

void Unmap(void* context) {
  const std::unique_ptr<ReservedMemory> memory(
      static_cast<ReservedMemory*>(context));
  munmap(memory->data, memory->bytes);
}

// 0 if it is not a size.
int64_t FloatBytes(const std::vector<int64_t>& sizes) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : sizes) {
    if (size <= 0 || __builtin_mul_overflow(bytes, size, &bytes)) return 0;
  }
  return bytes;
}

}  // namespace

torch::Tensor Reserve(torch::ArrayRef<torch::jit::IValue> args,
                      int64_t min_bytes) {
  if (!args[0].isIntList()) return {};
  const std::vector<int64_t> sizes = args[0].toIntVector();
  const auto type = args[1].isNone() ? torch::get_default_dtype_as_scalartype()
                                     : args[1].toScalarType();
  if (type != torch::kFloat ||
      (!args[2].isNone() && args[2].toLayout() != torch::kStrided) ||
      (!args[3].isNone() && !args[3].toDevice().is_cpu()) ||
      (!args[4].isNone() && args[4].toBool()) ||
      (!args[5].isNone() &&
       args[5].toMemoryFormat() != torch::MemoryFormat::Contiguous)) {
    return {};
  }
  const int64_t bytes = FloatBytes(sizes);
  if (bytes == 0 || bytes < min_bytes) return {};
  const auto length = static_cast<size_t>(bytes);
  // Even if there is not as much memory.
  void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return {};
  return FloatsIn(
      MakeStorage(length, data, new ReservedMemory{data, length}, &Unmap),
      c10::DispatchKeySet(c10::DispatchKey::CPU), sizes, 0);
}

const ReservedMemory* ReservedIn(const c10::Storage& storage) {
  return storage.data_ptr().cast_context<ReservedMemory>(&Unmap);
}

bool IsUntouched(const ReservedMemory& memory) {
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((memory.bytes + page_bytes - 1) /
                                   page_bytes);
  // A page that was only read is there, too.
  return mincore(memory.data, memory.bytes, pages.data()) == 0 &&
         std::none_of(pages.begin(), pages.end(),
                      [](unsigned char page) { return (page & 1) != 0; });
}

torch::Tensor FloatsIn(c10::Storage storage, c10::DispatchKeySet keys,
                       torch::IntArrayRef sizes, int64_t offset) {
  torch::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), keys, caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  return tensor;
}

c10::Storage MakeStorage(size_t bytes, void* data, void* context,
                         c10::DeleterFnPtr deleter) {
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(data, context, deleter, torch::kCPU),
          c10::GetCPUAllocator(), /*resizable=*/true};
}

}  // namespace elasticdl::model
