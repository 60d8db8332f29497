// Keeps the members' buffers (running statistics of BatchNorm) equal: their
// values are averaged, weighted by records, in the step's own all-reduce.
// Buffers that no member changed stay as they are.
//
// The sum contains first one number per buffer (how many members changed it),
// then the values of all buffers: those of type float, double and int64, in
// this order. The layout is the same on every device.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "flat_parameters.h"

namespace elasticdl::worker {

// Moves tensors to the device, in place. Those of the same type become views of
// one flat tensor, so that an operation on all of them is one operation.
void MoveBuffers(const NamedTensors& buffers, c10::Device device);

// Runs on the training thread.
class BufferSync {
 public:
  // Remembers the values of `buffers` as those of the committed step. Tensors
  // that are not float, double or int64 are not kept level. Those of a device
  // have been through MoveBuffers. On the CPU, `copy` makes the place where the
  // values of a tensor are remembered, with these values in it.
  using Copy = std::function<torch::Tensor(const torch::Tensor&)>;
  explicit BufferSync(
      const NamedTensors& buffers,
      const Copy& copy = [](const torch::Tensor& t) { return t.clone(); });

  // Floats that Fill writes and Take reads.
  size_t size() const { return size_; }
  // This member's part of the sum: its buffers times `weight`, and for each
  // whether it changed since the committed step. `out` has size() floats; on a
  // device nothing waits.
  void Fill(double weight, float* out) const;
  void Fill(double weight, const torch::Tensor& out) const;
  // The sum, times `factor`, becomes the value of what anybody changed.
  void Take(const float* sum, double factor);
  void Take(const torch::Tensor& sum, double factor);
  // The values at hand are those of the committed step.
  void Commit();
  // Back to those.
  void RollBack();
  // The same, and Recall brings back the values that were at hand. On the CPU.
  void SetAside();
  void Recall();

 private:
  struct Entry {
    torch::Tensor tensor;
    torch::Tensor committed;
    // Made when it is needed.
    torch::Tensor aside;
  };
  // On a device: all entries of one type.
  struct Group {
    torch::Tensor flat;
    torch::Tensor committed;
    // For each element the number of its entry.
    torch::Tensor entry;
  };
  void AddGroup(size_t begin, size_t end);

  std::vector<Entry> entries_;
  std::vector<Group> groups_;
  size_t size_ = 0;
};

}  // namespace elasticdl::worker
