// Tensors with memory that costs nothing before it is used.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>

namespace elasticdl::model {

struct ReservedMemory {
  void* data;
  size_t bytes;
};

// What torch::empty.memory_format would make of `args`, in reserved memory.
// Undefined if they do not make a dense tensor of floats on the CPU with
// `min_bytes` at least, or if there are no addresses left.
torch::Tensor Reserve(torch::ArrayRef<torch::jit::IValue> args,
                      int64_t min_bytes);

// The memory of a storage that Reserve has made; null: it is another one.
const ReservedMemory* ReservedIn(const c10::Storage& storage);

// Whether nobody has read or written any of it yet.
bool IsUntouched(const ReservedMemory& memory);

// A tensor of floats in a given storage.
torch::Tensor FloatsIn(c10::Storage storage, c10::DispatchKeySet keys,
                       torch::IntArrayRef sizes, int64_t offset);
// A storage of such a tensor on the CPU.
c10::Storage MakeStorage(size_t bytes, void* data, void* context,
                         c10::DeleterFnPtr deleter);

}  // namespace elasticdl::model
