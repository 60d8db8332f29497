// Sums the gradients of all members of a world, in buckets, while backward
// still computes the others: the parameters' last gradients are ready first, so
// buckets go from the end of the flat array to its beginning. In front of the
// gradients lies the head (control word, buffers), which goes with the last
// bucket, or right after it (DeviceSum).
#pragma once

#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device_sum.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/trace/recorder.h"
#include "flat_parameters.h"

namespace elasticdl::worker {

// A member may be slow for reasons of its own; whether it hangs is for the
// master to say, which then breaks the world off. This is the last resort.
inline constexpr absl::Duration kReduceTimeout = absl::Minutes(30);

// The same for sums of a DeviceCommunicator, which may stall though all members
// are well (a cable, a switch): nobody else notices that. `step_timeout`: after
// so long a member reports that its own part of a step hangs; 0 = never.
absl::Duration DeviceSumTimeout(absl::Duration step_timeout);

// Runs on the training thread, except where said.
class GradientReducer {
 public:
  // `flat` must outlive the reducer. `device_timeout`: for enqueuing a sum of a
  // DeviceCommunicator.
  GradientReducer(FlatParameters& flat, GradientCompression compression,
                  absl::Duration device_timeout = kReduceTimeout);
  ~GradientReducer();

  // The next backward is the last one of this step: buckets go out as they get
  // ready, to `communicator`.
  void BeginOverlap(std::shared_ptr<collective::Communicator> communicator);
  // Backward is done (or there was none): sends the remaining buckets, with
  // `head` floats in front of the gradients, and waits for all sums. On a
  // device, later work of this thread's stream comes after the sums; a sum of a
  // DeviceCommunicator is valid when its Wait says so.
  absl::Status Finish(std::shared_ptr<collective::Communicator> communicator,
                      size_t head);
  // Backward failed: nothing more is sent, the step is void. If it was given up
  // because the world is broken, that is the result; otherwise OK.
  absl::Status Cancel();

  // After Finish has failed: no sum was written over this member's gradients,
  // so they are still those of its minibatches, and of use. On the CPU and
  // without compression only.
  bool intact() const { return intact_; }
  // Gradients of a failed step are of no use from now on. Any thread.
  void ExpectNoMoreRounds() { no_more_rounds_ = true; }
  bool expects_no_more_rounds() const { return no_more_rounds_; }

  size_t num_buckets() const { return buckets_.size(); }

  // For a timeline; null = none. Not while something is reduced.
  void SetRecorder(trace::Recorder* recorder) { recorder_ = recorder; }

 private:
  // Floats [begin, end) of the gradients; the parameters [first, last).
  struct Bucket {
    size_t begin = 0;
    size_t end = 0;
    size_t first = 0;
    size_t last = 0;
    std::string failpoint;
  };
  struct Job {
    std::shared_ptr<collective::Communicator> communicator;
    size_t bucket = 0;
    size_t head = 0;
  };

  void MakeBuckets();
  void RegisterHooks();
  // Called by autograd's threads. Throws when a sum has failed and the
  // gradients are of no use any more.
  void OnGradientReady(size_t index);
  absl::Status FinishBuckets(
      std::shared_ptr<collective::Communicator> communicator, size_t head);
  absl::Status Reduce(const Job& job);
  // Notes whether a sum, or a part of it, may be among the gradients.
  void NoteWritten(const absl::Status& reduced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReduceOnHost(const Job& job);
  absl::Status ReduceCompressed(collective::Communicator& communicator,
                                float* data, size_t count);
  void Communicate();

  FlatParameters& flat_;
  const GradientCompression compression_;
  const absl::Duration device_timeout_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  // Own the hooks.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<uint16_t> compressed_;
  trace::Recorder* recorder_ = nullptr;
  // If the gradients are on a device.
  std::unique_ptr<DeviceSum> device_;

  bool intact_ = false;
  std::atomic<bool> no_more_rounds_{false};

  Mutex mu_;
  CondVar done_;
  std::shared_ptr<collective::Communicator> overlap_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> missing_ ABSL_GUARDED_BY(mu_);
  size_t launched_ ABSL_GUARDED_BY(mu_) = 0;
  size_t finished_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  // Of this step: a sum was written over gradients.
  bool written_ ABSL_GUARDED_BY(mu_) = false;
  // A hook has ended the backward pass because of status_.
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;

  Queue<Job> jobs_;
  // Last: uses what is above. Only with more than one bucket.
  std::unique_ptr<Thread> thread_;
};

}  // namespace elasticdl::worker
