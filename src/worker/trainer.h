// How a worker takes part in training. JobRunner passes messages and
// minibatches to it and runs a step when it asks for one.
#pragma once

#include "absl/status/status.h"
#include "elasticdl/v1/master.pb.h"
#include "event.h"

namespace elasticdl::worker {

// Runs on the training thread, except Hear, Interrupt and Abort.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Handles what cannot wait until the current step is done: a training task to
  // read ahead, a world to form or to abort. True when the message needs
  // nothing else; otherwise Handle gets it, too, in the order of all messages.
  // Called by the receiving thread; must not block.
  virtual bool Hear(const v1::MasterMessage& message) = 0;
  // Gives up what waits for other workers now. Any thread.
  virtual void Interrupt(const std::string& reason) = 0;
  // The same for good. Any thread.
  virtual void Abort(const std::string& reason) = 0;

  // Events other than the evaluator's and the predictor's. An error fails the
  // job.
  virtual absl::Status Handle(const Event& event) = 0;

  // There is something to do.
  virtual bool HasWork() const = 0;
  // Does it. An error fails the job.
  virtual absl::Status Work() = 0;
  // Before an evaluation: this worker gets the newest model, if it is
  // elsewhere. CANCELLED: the worker is to stop.
  virtual absl::Status Refresh() = 0;
  // Nothing is to be done before the next event.
  virtual void BeforeWaiting() = 0;
  // That event should be data that is on its way.
  virtual bool WaitsForData() const = 0;

  // This worker has a trained model.
  virtual bool has_state() const = 0;
  // Before the process ends.
  virtual void Finish() = 0;
};

}  // namespace elasticdl::worker
