// The part of a network that is on parameter servers as arrays: its trained
// parameters, then its buffers. A server treats a gradient of a buffer as its
// new value.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/v1/ps.pb.h"
#include "replica.h"

namespace elasticdl::worker {

// Runs on the training thread.
class ServerDense {
 public:
  // `replica` must outlive this. `copies`: values may be pulled and gradients
  // be pushed while the network computes.
  ServerDense(Replica& replica, bool copies);

  void AddTo(v1::PsDefinition& definition) const;
  // Of all values.
  size_t size() const { return parameters_ + buffer_values_; }

  // Where to pull to; TakePulled brings it into the network.
  float* pull_target();
  void TakePulled();
  // The network's gradients and buffers as they are now, until the next call.
  const float* Gradients();
  // Its values and buffers; one array of each slot of the optimizer, as
  // Client::SetInitialValues wants them.
  std::vector<float> Values() const;
  std::vector<std::vector<float>> Slots() const;
  // The network gets these values, of size().
  void SetValues(const std::vector<float>& values);

 private:
  using Buffer = std::pair<std::string, torch::Tensor>;
  void GetBuffers(float* out) const;
  void SetBuffers(const float* in);

  Replica& replica_;
  const size_t parameters_;
  // Those that are carried along.
  std::vector<Buffer> buffers_;
  size_t buffer_values_ = 0;
  // Empty: the network's own arrays will do.
  std::vector<float> pulled_;
  std::vector<float> gradients_;
};

}  // namespace elasticdl::worker
