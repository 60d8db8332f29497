// The seam between the worker's loop and a distribution strategy.
#pragma once

#include "absl/status/statusor.h"
#include "elasticdl/model/types.h"
#include "replica.h"

namespace elasticdl::worker {

// Runs on the training thread.
class Trainer {
 public:
  virtual ~Trainer() = default;
  // One step on a minibatch. Returns its loss; after an error the model is as
  // it was before.
  virtual absl::StatusOr<double> Step(const Batch& batch,
                                      double learning_rate) = 0;
};

// One worker, no communication.
class LocalTrainer : public Trainer {
 public:
  explicit LocalTrainer(Replica& replica) : replica_(replica) {}
  absl::StatusOr<double> Step(const Batch& batch,
                              double learning_rate) override {
    const absl::StatusOr<double> loss = replica_.ComputeGradients(batch);
    if (loss.ok()) replica_.ApplyGradients(learning_rate);
    return loss;
  }

 private:
  Replica& replica_;
};

}  // namespace elasticdl::worker
