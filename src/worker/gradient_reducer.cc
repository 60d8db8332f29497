#include "gradient_reducer.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "device.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

// The first bucket is small, so that the wire is busy early; later ones are
// large, so that there are few.
constexpr size_t kFirstBucketFloats = (1 << 20) / sizeof(float);
constexpr size_t kBucketFloats = (25 << 20) / sizeof(float);

}  // namespace

absl::Duration DeviceSumTimeout(absl::Duration step_timeout) {
  if (step_timeout <= absl::ZeroDuration()) return kReduceTimeout;
  // Another member may be late by two parts of a step (its data and its
  // backward pass, say), each as long as is allowed. If it hangs, it should be
  // replaced before this.
  constexpr absl::Duration kReplaced = absl::Seconds(30);
  return 2 * step_timeout + kReplaced;
}

GradientReducer::GradientReducer(FlatParameters& flat,
                                 GradientCompression compression,
                                 absl::Duration device_timeout)
    : flat_(flat),
      compression_(compression),
      device_timeout_(device_timeout),
      jobs_(std::numeric_limits<size_t>::max()) {
  MakeBuckets();
  if (!flat_.device().is_cpu()) {
    device_ = std::make_unique<DeviceSum>(flat_, compression, buckets_.size());
  }
  if (buckets_.size() > 1) {
    RegisterHooks();
    thread_ = std::make_unique<Thread>("reducer", [this] { Communicate(); });
  }
}

GradientReducer::~GradientReducer() {
  // Whoever ends because of a device that is broken has said so.
  const absl::Status cancelled =
      OnDevice("ending a step", [this] { return Cancel(); });
  if (!cancelled.ok()) LogDebug(cancelled.message());
  jobs_.Close();
  if (thread_ != nullptr) thread_->Join();
}

void GradientReducer::MakeBuckets() {
  const auto& slices = flat_.slices();
  bucket_of_.resize(slices.size());
  Bucket bucket;
  bucket.end = flat_.size();
  bucket.last = slices.size();
  for (size_t i = slices.size(); i-- > 0;) {
    bucket_of_[i] = buckets_.size();
    bucket.begin = slices[i].offset;
    bucket.first = i;
    const size_t limit = buckets_.empty() ? kFirstBucketFloats : kBucketFloats;
    if (i == 0 || bucket.end - bucket.begin >= limit) {
      bucket.failpoint = absl::StrCat("worker.reduce.", buckets_.size());
      buckets_.push_back(bucket);
      bucket.end = bucket.begin;
      bucket.last = i;
    }
  }
}

void GradientReducer::RegisterHooks() {
  const auto& tensors = flat_.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::shared_ptr<torch::autograd::Node> accumulator =
        torch::autograd::impl::grad_accumulator(tensors[i]);
    accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, i](const torch::autograd::variable_list& outputs,
                      const torch::autograd::variable_list&) {
              OnGradientReady(i);
              return outputs;
            }));
    accumulators_.push_back(std::move(accumulator));
  }
}

void GradientReducer::BeginOverlap(
    std::shared_ptr<collective::Communicator> communicator) {
  if (thread_ == nullptr) return;
  MutexLock lock(mu_);
  overlap_ = std::move(communicator);
  missing_.clear();
  for (const Bucket& bucket : buckets_) {
    missing_.push_back(bucket.last - bucket.first);
  }
  launched_ = finished_ = 0;
  status_ = absl::OkStatus();
  written_ = false;
  given_up_ = false;
}

void GradientReducer::OnGradientReady(size_t index) {
  MutexLock lock(mu_);
  if (overlap_ == nullptr) return;
  if (!status_.ok() && (written_ || device_ != nullptr || no_more_rounds_)) {
    // The step will be repeated in another world. With a large model, the rest
    // of this backward pass would be most of the time until then.
    given_up_ = true;
    throw std::runtime_error("the world is broken");
  }
  flat_.CollectGradient(index);
  // What is computed to the end goes into the sum of the next world.
  if (!status_.ok()) return;
  --missing_[bucket_of_[index]];
  // Autograd may finish parameters in a different order on each member, but
  // all must reduce the buckets in the same order. The last bucket waits for
  // Finish, because the head is sent with it.
  while (launched_ + 1 < buckets_.size() && missing_[launched_] == 0) {
    // On autograd's thread for the device, whose stream computes gradients.
    if (device_ != nullptr) device_->MarkReady(launched_);
    jobs_.Push({overlap_, launched_++, 0});
  }
}

absl::Status GradientReducer::Finish(
    std::shared_ptr<collective::Communicator> communicator, size_t head) {
  intact_ = false;
  flat_.CollectGradients();
  absl::Status status = FinishBuckets(std::move(communicator), head);
  if (device_ != nullptr) device_->Join();
  MutexLock lock(mu_);
  intact_ = !written_ && device_ == nullptr && !no_more_rounds_;
  return status;
}

absl::Status GradientReducer::FinishBuckets(
    std::shared_ptr<collective::Communicator> communicator, size_t head) {
  if (thread_ == nullptr) {
    if (device_ != nullptr) device_->MarkReady(0);
    absl::Status status = Reduce({std::move(communicator), 0, head});
    MutexLock lock(mu_);
    written_ = false;
    NoteWritten(status);
    return status;
  }
  MutexLock lock(mu_);
  // A member without data has no backward pass, but the others wait for its
  // part of every bucket.
  if (overlap_ == nullptr) {
    launched_ = finished_ = 0;
    status_ = absl::OkStatus();
    written_ = false;
  }
  overlap_.reset();
  while (launched_ < buckets_.size()) {
    const bool last = launched_ + 1 == buckets_.size();
    if (device_ != nullptr) device_->MarkReady(launched_);
    jobs_.Push({communicator, launched_++, last ? head : 0});
  }
  while (finished_ < buckets_.size()) done_.Wait(mu_);
  return status_;
}

absl::Status GradientReducer::Cancel() {
  MutexLock lock(mu_);
  if (overlap_ == nullptr) return absl::OkStatus();
  // The other members wait for buckets that this one will not send.
  overlap_->Abort("this member failed in the middle of a step");
  overlap_.reset();
  while (finished_ < launched_) done_.Wait(mu_);
  // What is still being written must not meet what the next step writes.
  if (device_ != nullptr) device_->Join();
  return given_up_ ? status_ : absl::OkStatus();
}

void GradientReducer::Communicate() {
  const absl::Status usable = UseDevice(flat_.device());
  while (std::optional<Job> job = jobs_.Pop()) {
    const absl::Status status = usable.ok() ? Reduce(*job) : usable;
    // Whoever waits for this thread may drop the communicator next, and relies
    // on being the last: that waits for what is left on the device.
    job->communicator.reset();
    {
      MutexLock lock(mu_);
      ++finished_;
      if (status_.ok()) status_ = status;
      NoteWritten(status);
    }
    done_.NotifyAll();
  }
}

absl::Status GradientReducer::Reduce(const Job& job) {
  const Bucket& bucket = buckets_[job.bucket];
  const trace::ScopedSpan timed(recorder_, trace::Kind::kAllReduce,
                                static_cast<int64_t>(job.bucket));
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.reduce"));
  ELASTICDL_RETURN_IF_ERROR(Failpoint(bucket.failpoint));
  if (device_ == nullptr) return ReduceOnHost(job);
  const bool by_device = job.communicator->device() != nullptr;
  const absl::Duration timeout = by_device ? device_timeout_ : kReduceTimeout;
  const auto reduce = [&] {
    return device_->Reduce(*job.communicator, job.bucket, bucket.begin,
                           bucket.end - bucket.begin, job.head, timeout);
  };
  return OnDevice("summing gradients", reduce);
}

void GradientReducer::NoteWritten(const absl::Status& reduced) {
  // What is compressed is written back between two sums.
  written_ |= compression_ != GradientCompression::kNone ||
              !collective::LeftDataAlone(reduced);
}

absl::Status GradientReducer::ReduceOnHost(const Job& job) {
  const Bucket& bucket = buckets_[job.bucket];
  float* begin = flat_.gradients() + bucket.begin;
  const size_t count = bucket.end - bucket.begin;
  if (compression_ == GradientCompression::kNone) {
    return job.communicator->AllReduce(begin - job.head, count + job.head,
                                       collective::DataType::kFloat32,
                                       kReduceTimeout);
  }
  // In the order of members on a device (DeviceSum).
  ELASTICDL_RETURN_IF_ERROR(ReduceCompressed(*job.communicator, begin, count));
  if (job.head == 0) return absl::OkStatus();
  return job.communicator->AllReduce(begin - job.head, job.head,
                                     collective::DataType::kFloat32,
                                     kReduceTimeout);
}

absl::Status GradientReducer::ReduceCompressed(
    collective::Communicator& communicator, float* data, size_t count) {
  const bool bf16 = compression_ == GradientCompression::kBFloat16;
  compressed_.resize(std::max(compressed_.size(), count));
  const auto size = static_cast<int64_t>(count);
  const torch::Tensor full = torch::from_blob(data, {size}, torch::kFloat32);
  const torch::Tensor half = torch::from_blob(
      compressed_.data(), {size}, bf16 ? torch::kBFloat16 : torch::kFloat16);
  torch::NoGradGuard no_grad;
  half.copy_(full);
  ELASTICDL_RETURN_IF_ERROR(communicator.AllReduce(
      compressed_.data(), count,
      bf16 ? collective::DataType::kBFloat16 : collective::DataType::kFloat16,
      kReduceTimeout));
  full.copy_(half);
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
