// Tensors of a device as bytes in host memory, for whoever saves, sends or
// compares them. On the CPU the bytes are the tensors themselves.
#pragma once

#include <torch/types.h>

#include <map>

namespace elasticdl::worker {

// Runs on the training thread.
class HostMirror {
 public:
  // Tensors whose whole storage is to be mirrored; views of them need not be
  // added.
  void Add(const torch::Tensor& tensor);

  // Where the bytes of an added tensor, or of a view of it that is contiguous,
  // are on the host. The same until the end.
  char* Data(const torch::Tensor& view) const;
  // From the device to the host, and back. Each waits for the device. Nothing
  // on the CPU.
  void Fetch();
  void Store();

 private:
  struct Pair {
    torch::Tensor device;
    // Bytes; pinned, made by the first call that needs them.
    torch::Tensor host;
  };
  Pair& Find(const torch::Tensor& view) const;

  // By the storage's address.
  mutable std::map<const void*, Pair> pairs_;
};

}  // namespace elasticdl::worker
