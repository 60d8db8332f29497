// Keeps the buffers of the members level (running statistics of BatchNorm): the
// members' values are averaged, weighted by records, in the step's own
// all-reduce. Buffers that no member changed are left alone.
#pragma once

#include <torch/types.h>

#include <vector>

#include "flat_parameters.h"

namespace elasticdl::worker {

// Runs on the training thread.
class BufferSync {
 public:
  // Remembers the values of `buffers` as those of the committed step. Tensors
  // that are not float, double or int64 are not kept level.
  explicit BufferSync(const NamedTensors& buffers);

  // Floats that Fill writes and Take reads.
  size_t size() const { return size_; }
  // This member's part of the sum: its buffers times `weight`, and for each
  // whether it changed since the committed step.
  void Fill(double weight, float* out) const;
  // The sum, times `factor`, becomes the value of what anybody changed.
  void Take(const float* sum, double factor);
  // The values at hand are those of the committed step.
  void Commit();
  // Back to those.
  void RollBack();

 private:
  struct Entry {
    torch::Tensor tensor;
    torch::Tensor committed;
  };
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace elasticdl::worker
