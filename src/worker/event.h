// The events of a worker; the loop of JobRunner handles one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/v1/master.pb.h"
#include "minibatch.h"

namespace elasticdl::worker {

struct Event {
  enum class Kind {
    kMessage,
    // A minibatch is read: of a training task; of another one.
    kTraining,
    kOther,
    kWorldConnected,
    kLeave,
    kSaveDone,
    kMasterBack,
    kMasterLost
  };
  Kind kind = Kind::kMessage;
  // kMessage.
  v1::MasterMessage message;
  // kTraining, kOther (evaluation and prediction): shared with its feeder.
  std::shared_ptr<Minibatch> minibatch;
  // kWorldConnected.
  int64_t generation = 0;
  // kMasterBack: which of the masters after the first.
  int64_t master = 0;
};

// Thread-safe.
class EventQueue {
 public:
  virtual ~EventQueue() = default;
  // Never blocks.
  virtual void Push(Event event) = 0;
  // Nothing after `timeout`.
  virtual std::optional<Event> Pop(absl::Duration timeout) = 0;
  virtual bool empty() const = 0;

  void PushKind(Event::Kind kind) {
    if (kind == Event::Kind::kLeave) asked_to_leave_ = true;
    Event event;
    event.kind = kind;
    Push(std::move(event));
  }
  // True before the event is handled: whatever fails from then on may fail
  // because everything around this process ends, too.
  bool asked_to_leave() const { return asked_to_leave_; }

 private:
  std::atomic<bool> asked_to_leave_ = false;
};

// Between threads of one process.
class ThreadEventQueue : public EventQueue {
 public:
  void Push(Event event) override { queue_.Push(std::move(event)); }
  std::optional<Event> Pop(absl::Duration timeout) override {
    return queue_.Pop(timeout);
  }
  bool empty() const override { return queue_.size() == 0; }

 private:
  Queue<Event> queue_{std::numeric_limits<size_t>::max()};
};

// Sends to the master; must not block. Called from several threads.
using SendFunction = std::function<void(v1::WorkerMessage)>;

}  // namespace elasticdl::worker
