// Copies of device tensors in host memory, to be saved, sent or compared as
// bytes. On the CPU the bytes are the tensors themselves.
#pragma once

#include <torch/types.h>

#include <map>

namespace elasticdl::worker {

// Runs on the training thread.
class HostMirror {
 public:
  // Mirrors the whole storage of a tensor; views of it need not be added.
  // Allocates pinned memory, so that no later call can fail for lack of it.
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
    // Bytes; pinned.
    torch::Tensor host;
  };
  const Pair& Find(const torch::Tensor& view) const;

  // By the storage's address.
  std::map<const void*, Pair> pairs_;
};

}  // namespace elasticdl::worker
