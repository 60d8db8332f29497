// Collectives by Gloo's algorithms.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/transport/device.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/sum.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "gloo/backend.h"

namespace elasticdl::collective {
namespace {

// Up to this many bytes, times the other members, gathering all arrays and
// adding them up here beats Gloo's ring. Two ranks on one host, medians in
// microseconds, ring against gathering: 64 B 473/205, 4 KiB 445/248, 32 KiB
// 457/233, 64 KiB 3099/4072; at 100 MiB the ring takes 102 ms. The 40 ms of
// delayed acknowledgements, which Gloo's older algorithms on bound buffers
// have at some sizes, were not seen between 4 B and 100 MiB with either.
constexpr size_t kSmallBytes = 32 << 10;

// A buffer of Gloo whose waits end with the call's deadline or with the world.
// Gloo alone does not wake who waits for a message that was half sent, or half
// received, when the connection broke.
class WatchedBuffer final : public gloo::transport::UnboundBuffer,
                            private MemberWatch::Sleeper {
 public:
  WatchedBuffer(std::unique_ptr<gloo::transport::UnboundBuffer> inner,
                MemberWatch& watch, Deadline* deadline)
      : UnboundBuffer(inner->ptr, inner->size),
        inner_(std::move(inner)),
        watch_(watch),
        deadline_(deadline) {
    watch_.Add(this);
  }
  ~WatchedBuffer() override { watch_.Remove(this); }

  bool waitRecv(int* rank, std::chrono::milliseconds) override {
    Check();
    return Done(inner_->waitRecv(rank, Left()));
  }
  bool waitSend(int* rank, std::chrono::milliseconds) override {
    Check();
    return Done(inner_->waitSend(rank, Left()));
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    Check();
    inner_->send(rank, slot, offset, bytes);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t bytes) override {
    Check();
    inner_->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset,
            size_t bytes) override {
    Check();
    inner_->recv(std::move(ranks), slot, offset, bytes);
  }

 private:
  // The flags that this sets stay until a wait has seen them.
  void Wake() override {
    inner_->abortWaitRecv();
    inner_->abortWaitSend();
  }
  void Check() {
    if (!watch_.Check().ok()) throw std::runtime_error("the world has ended");
  }
  bool Done(bool done) {
    if (!done) throw std::runtime_error("woken by the end of the world");
    return true;
  }
  std::chrono::milliseconds Left() {
    return std::chrono::milliseconds(absl::ToInt64Milliseconds(
        absl::Ceil(deadline_->Left(), absl::Milliseconds(1))));
  }

  const std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
  MemberWatch& watch_;
  Deadline* const deadline_;
};

}  // namespace

NoSigPipe::NoSigPipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigset_t pending;
  sigpending(&pending);
  pending_before_ = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before_);
}

NoSigPipe::~NoSigPipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now = {};
  if (!pending_before_) sigtimedwait(&pipe, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

absl::Status RunGloo(MemberWatch& watch, Deadline& deadline,
                     const std::function<void()>& body) {
  const NoSigPipe no_sig_pipe;
  absl::Status status;
  try {
    body();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    // What ended the world first explains it best.
    ELASTICDL_RETURN_IF_ERROR(watch.Check());
    const bool late = deadline.Left() == absl::ZeroDuration();
    status = late ? absl::DeadlineExceededError(absl::StrCat(
                        "other members did not answer in time: ", error.what()))
                  : absl::AbortedError(absl::StrCat("Gloo: ", error.what()));
  }
  watch.End(status);
  return status;
}

WatchedContext::WatchedContext(std::shared_ptr<gloo::transport::Context> inner,
                               MemberWatch& watch)
    : Context(inner->rank, inner->size),
      inner_(std::move(inner)),
      watch_(watch) {}

std::unique_ptr<gloo::transport::UnboundBuffer>
WatchedContext::createUnboundBuffer(void* ptr, size_t size) {
  return std::make_unique<WatchedBuffer>(inner_->createUnboundBuffer(ptr, size),
                                         watch_, deadline_);
}

GlooContext::GlooContext(std::shared_ptr<gloo::transport::Device> device,
                         std::shared_ptr<WatchedContext> transport)
    : Context(transport->rank, transport->size) {
  device_ = std::move(device);
  transportContext_ = std::move(transport);
}

GlooCommunicator::GlooCommunicator(
    std::shared_ptr<MemberWatch> watch,
    std::shared_ptr<gloo::transport::Device> device,
    std::shared_ptr<WatchedContext> transport)
    : watch_(std::move(watch)),
      transport_(std::move(transport)),
      context_(std::make_shared<GlooContext>(std::move(device), transport_)) {}

// The others are told first: closing takes Gloo up to 10 ms per connection.
GlooCommunicator::~GlooCommunicator() {
  watch_->End(absl::AbortedError("this member left"));
}

absl::Status GlooCommunicator::Call(const char* failpoint,
                                    absl::Duration timeout,
                                    const std::function<void()>& body) {
  Deadline deadline(timeout);
  ELASTICDL_RETURN_IF_ERROR(watch_->Enter());
  ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
  transport_->set_deadline(&deadline);
  ELASTICDL_RETURN_IF_ERROR(RunGloo(*watch_, deadline, body));
  watch_->Complete();
  return absl::OkStatus();
}

void GlooCommunicator::Synchronise() {
  gloo::BarrierOptions options(context_);
  gloo::barrier(options);
}

// The own bytes are in their place in `all` already.
void GlooCommunicator::Gather(char* all, size_t bytes) {
  gloo::AllgatherOptions options(context_);
  options.setOutput(all, bytes * static_cast<size_t>(size()));
  gloo::allgather(options);
}

void GlooCommunicator::ReduceSmall(char* data, size_t bytes, DataType type) {
  const auto members = static_cast<size_t>(size());
  scratch_.resize(std::max(scratch_.size(), bytes * members));
  std::memcpy(scratch_.data() + bytes * static_cast<size_t>(rank()), data,
              bytes);
  Gather(scratch_.data(), bytes);
  std::vector<const void*> inputs;
  for (size_t i = 0; i < members; ++i) {
    inputs.push_back(scratch_.data() + i * bytes);
  }
  Sum(inputs.data(), size(), data, nullptr, bytes / SizeOf(type), type);
}

template <typename T>
void GlooCommunicator::ReduceRing(void* data, size_t count, DataType type) {
  gloo::AllreduceOptions options(context_);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setOutput(static_cast<T*>(data), count);
  options.setReduceFunction(
      [type](void* out, const void* a, const void* b, size_t n) {
        const void* const inputs[] = {a, b};
        Sum(inputs, 2, out, nullptr, n, type);
      });
  gloo::allreduce(options);
}

void GlooCommunicator::Reduce(void* data, size_t count, DataType type) {
  const size_t bytes = count * SizeOf(type);
  if (bytes == 0) return Synchronise();
  if (bytes * static_cast<size_t>(size() - 1) <= kSmallBytes) {
    return ReduceSmall(static_cast<char*>(data), bytes, type);
  }
  switch (type) {
    case DataType::kFloat32:
      return ReduceRing<float>(data, count, type);
    case DataType::kBFloat16:
    case DataType::kFloat16:
      return ReduceRing<uint16_t>(data, count, type);
    case DataType::kInt64:
      return ReduceRing<int64_t>(data, count, type);
  }
}

absl::Status GlooCommunicator::AllReduce(void* data, size_t count,
                                         DataType type,
                                         absl::Duration timeout) {
  return Call("collective.all_reduce", timeout,
              [&] { Reduce(data, count, type); });
}

// The barrier comes last, because Gloo's root returns when its data is in the
// kernel's hands.
absl::Status GlooCommunicator::Broadcast(void* data, size_t bytes, int root,
                                         absl::Duration timeout) {
  if (root < 0 || root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size()));
  }
  return Call("collective.broadcast", timeout, [&] {
    if (bytes > 0) {
      gloo::BroadcastOptions options(context_);
      options.setRoot(root);
      options.setOutput(static_cast<char*>(data), bytes);
      gloo::broadcast(options);
    }
    Synchronise();
  });
}

absl::Status GlooCommunicator::AllGather(const void* in, void* out,
                                         size_t bytes, absl::Duration timeout) {
  return Call("collective.all_gather", timeout, [&] {
    if (bytes == 0) return Synchronise();
    char* const all = static_cast<char*>(out);
    char* const own = all + static_cast<size_t>(rank()) * bytes;
    if (own != in) std::memcpy(own, in, bytes);
    Gather(all, bytes);
  });
}

// Gloo's own needs a power of two of members; this moves twice the bytes.
absl::Status GlooCommunicator::ReduceScatter(void* data, size_t count,
                                             DataType type,
                                             absl::Duration timeout) {
  return Call("collective.reduce_scatter", timeout,
              [&] { Reduce(data, count * static_cast<size_t>(size()), type); });
}

absl::Status GlooCommunicator::Barrier(absl::Duration timeout) {
  return Call("collective.barrier", timeout, [&] { Synchronise(); });
}

}  // namespace elasticdl::collective
