// Tensors of a device as bytes in host memory, for whoever saves, sends or
// compares them. On the CPU the bytes are the tensors themselves.
#pragma once

#include <torch/types.h>

#include <map>

namespace elasticdl::worker {

// Runs on the training thread.
class HostMirror {
 public:
  // A tensor whose whole storage is to be mirrored; views of it need not be
  // added. Allocates pinned memory, so that nothing else here can fail for want
  // of it.
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
