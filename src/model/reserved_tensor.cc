#include "reserved_tensor.h"

#include <c10/core/CPUAllocator.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
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
  const size_t num_pages = (memory.bytes + page_bytes - 1) / page_bytes;
  // A word for each page of this process: in memory, or in swap. (mincore knows
  // nothing of swap.) A page that was only read is there, too.
  constexpr uint64_t kThere = uint64_t{1} << 63 | uint64_t{1} << 62;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::vector<uint64_t> words(std::min<size_t>(num_pages, 1 << 16));
  const size_t first = reinterpret_cast<uintptr_t>(memory.data) / page_bytes;
  bool untouched = true;
  for (size_t done = 0; untouched && done < num_pages;) {
    const size_t wanted = std::min(words.size(), num_pages - done);
    const ssize_t got =
        pread(fd, words.data(), wanted * sizeof(uint64_t),
              static_cast<off_t>((first + done) * sizeof(uint64_t)));
    const size_t num =
        got < 0 ? 0 : static_cast<size_t>(got) / sizeof(uint64_t);
    const auto end = words.begin() + static_cast<ptrdiff_t>(num);
    untouched = num > 0 && std::none_of(words.begin(), end, [](uint64_t word) {
                  return (word & kThere) != 0;
                });
    done += num;
  }
  close(fd);
  return untouched;
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
