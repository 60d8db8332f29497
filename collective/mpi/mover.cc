#include "mpi/mover.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// Fits into the cache of a core together with its copy.
constexpr size_t kChunkBytes = 256 << 10;
// Buffers have one of two sizes. A world of many members exchanges small
// messages with all of them at once.
constexpr size_t kSmallBytes = 4 << 10;
// Chunks of a message that are under way at a time: one is being copied, one
// moved, one waits.
constexpr size_t kMostChunks = 3;

// How to wait for the next thing to happen: MPI has nothing to sleep on.
class Backoff {
 public:
  explicit Backoff(MpiThread& thread) : thread_(thread) {}
  void Moved() { since_ = 0; }
  void Wait() {
    const int64_t now = Deadline::Now();
    if (since_ == 0) since_ = now;
    const int64_t silence = now - since_;
    if (silence < kSpinNanos) return;
    // Others may need this core to answer.
    if (silence < kYieldNanos) {
      sched_yield();
    } else {
      thread_.Pause(kPause);
    }
  }

 private:
  static constexpr int64_t kSpinNanos = 20000;
  // Members that compute for about as long come within this time of each other.
  static constexpr int64_t kYieldNanos = 2000000;
  static constexpr absl::Duration kPause = absl::Microseconds(100);

  MpiThread& thread_;
  int64_t since_ = 0;
};

}  // namespace

MpiMover::MpiMover(Options options) : options_(std::move(options)) {}

MpiMover::~MpiMover() {
  for (std::unique_ptr<Buffer>& buffer : buffers_) {
    if (!buffer->pending) continue;
    // MPI may use it until the process ends.
    [[maybe_unused]] char* const kept = buffer->data.release();
  }
}

absl::Status MpiMover::Failed(int rank, int error) const {
  char text[256] = "";
  {
    const MpiThread::Call call(*options_.thread);
    options_.table->describe(error, text, sizeof(text));
  }
  return Blame(rank, absl::AbortedError(absl::StrCat("lost rank ", rank,
                                                     ": MPI reports: ", text)));
}

absl::Status MpiMover::Late() const {
  for (const Message& message : messages_) {
    if (message.done == message.bytes) continue;
    return Blame(message.rank, absl::DeadlineExceededError(absl::StrCat(
                                   "heard nothing from rank ", message.rank,
                                   " over MPI in time")));
  }
  return absl::DeadlineExceededError("MPI did not answer in time");
}

MpiMover::Buffer* MpiMover::TakeBuffer(size_t bytes) {
  const size_t capacity = bytes <= kSmallBytes ? kSmallBytes : kChunkBytes;
  const auto found = std::find_if(
      free_.begin(), free_.end(),
      [&](const Buffer* buffer) { return buffer->capacity == capacity; });
  if (found != free_.end()) {
    Buffer* const buffer = *found;
    free_.erase(found);
    return buffer;
  }
  auto made = std::make_unique<Buffer>();
  made->data = std::unique_ptr<char[]>(new char[capacity]);
  made->capacity = capacity;
  buffers_.push_back(std::move(made));
  return buffers_.back().get();
}

absl::Status MpiMover::StartChunk(Message& message) {
  const size_t bytes = std::min(kChunkBytes, message.bytes - message.started);
  Buffer* const buffer = TakeBuffer(bytes);
  buffer->sends = message.data != nullptr;
  buffer->rank = message.rank;
  buffer->bytes = bytes;
  if (buffer->sends) {
    std::memcpy(buffer->data.get(), message.data + message.started, bytes);
  }
  const int peer = options_.mpi_ranks[static_cast<size_t>(message.rank)];
  handles_.push_back(0);
  ended_.emplace_back();
  pending_.push_back(buffer);
  buffer->pending = true;
  int error = 0;
  {
    const MpiThread::Call call(*options_.thread);
    // `delay` is a call that does not return.
    [[maybe_unused]] const absl::Status delayed = Failpoint("mpi.start");
    error = buffer->sends
                ? options_.table->send(buffer->data.get(), bytes, peer,
                                       options_.tag, &handles_.back())
                : options_.table->receive(buffer->data.get(), bytes, peer,
                                          options_.tag, &handles_.back());
  }
  if (error != 0) return Failed(message.rank, error);
  message.chunks.push_back(buffer);
  message.started += bytes;
  return absl::OkStatus();
}

absl::Status MpiMover::StartChunks(Message& message) {
  while (message.started < message.bytes &&
         message.chunks.size() < kMostChunks) {
    ELASTICDL_RETURN_IF_ERROR(StartChunk(message));
  }
  return absl::OkStatus();
}

void MpiMover::Finish(Message& message) {
  while (!message.chunks.empty() && !message.chunks.front()->pending) {
    Buffer* const buffer = message.chunks.front();
    message.chunks.pop_front();
    if (message.incoming != nullptr) {
      message.incoming->received(buffer->data.get(), message.done,
                                 buffer->bytes);
    }
    message.done += buffer->bytes;
    free_.push_back(buffer);
  }
}

absl::Status MpiMover::Poll(bool& moved) {
  int num_ended = 0;
  int error = 0;
  {
    const MpiThread::Call call(*options_.thread);
    error =
        options_.table->poll(handles_.data(), static_cast<int>(handles_.size()),
                             ended_.data(), &num_ended);
  }
  if (error != 0) return Failed(-1, error);
  moved = num_ended > 0;
  for (int i = 0; i < num_ended; ++i) {
    const ElasticdlMpiEnded& end = ended_[static_cast<size_t>(i)];
    Buffer& buffer = *pending_[static_cast<size_t>(end.index)];
    if (end.error != 0) return Failed(buffer.rank, end.error);
    if (!buffer.sends && end.bytes != static_cast<int64_t>(buffer.bytes)) {
      return Blame(buffer.rank,
                   absl::AbortedError(absl::StrCat(
                       "rank ", buffer.rank, " sent ", end.bytes,
                       " bytes over MPI instead of ", buffer.bytes)));
    }
    buffer.pending = false;
  }
  for (size_t i = pending_.size(); moved && i-- > 0;) {
    if (pending_[i]->pending) continue;
    pending_[i] = pending_.back();
    handles_[i] = handles_.back();
    pending_.pop_back();
    handles_.pop_back();
    ended_.pop_back();
  }
  return absl::OkStatus();
}

bool MpiMover::IsMoving() const {
  return std::any_of(
      messages_.begin(), messages_.end(),
      [](const Message& message) { return message.done < message.bytes; });
}

absl::Status MpiMover::Move(const std::vector<MeshSend>& sends,
                            const std::vector<Mesh::Incoming>& receives,
                            Deadline& deadline,
                            const std::function<bool()>& over) {
  messages_.clear();
  // First, so that there is a place for what comes.
  for (const Mesh::Incoming& receive : receives) {
    messages_.push_back({receive.rank, receive.bytes, nullptr, &receive});
  }
  for (const MeshSend& send : sends) {
    messages_.push_back({send.rank, send.bytes, send.data, nullptr});
  }
  Backoff backoff(*options_.thread);
  while (IsMoving()) {
    if (over()) return absl::CancelledError("the world has ended");
    for (Message& message : messages_) {
      ELASTICDL_RETURN_IF_ERROR(StartChunks(message));
    }
    bool moved = false;
    ELASTICDL_RETURN_IF_ERROR(Poll(moved));
    if (moved) {
      backoff.Moved();
      for (Message& message : messages_) Finish(message);
      continue;
    }
    if (deadline.Left() == absl::ZeroDuration()) return Late();
    backoff.Wait();
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::collective
