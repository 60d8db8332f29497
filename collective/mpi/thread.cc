#include "mpi/thread.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::collective {
namespace {

// Where the thread is: a number of a call, and one of these in the lowest bits.
constexpr uint64_t kOurs = 0;
constexpr uint64_t kInMpi = 1;
constexpr uint64_t kGivenUp = 2;
constexpr uint64_t kWhere = 3;
constexpr uint64_t kNextCall = 4;

// A sleep and a wakeup cost about as much as a small operation, so both sides
// look for each other for a moment first.
constexpr int64_t kSpinNanos = 20000;

// After an operation MPI may still have something to move, which it does only
// when it is called. Later there is seldom anything.
constexpr int kQuickTicks = 10;
constexpr absl::Duration kQuickTick = absl::Milliseconds(1);
constexpr absl::Duration kSlowTick = absl::Milliseconds(100);

// A process that was stopped finds that all its time has passed. So patience is
// used up in parts, between which the thread gets a chance to run.
constexpr int kParts = 4;
// In terms of patience: no call that does not wait for others takes this long.
constexpr int kLongestCall = 4;

constexpr char kLost[] =
    "a call into MPI did not return; continuing without MPI";

template <typename Condition>
bool SpinUntil(const Condition& condition) {
  const int64_t until = Deadline::Now() + kSpinNanos;
  while (!condition()) {
    if (Deadline::Now() >= until) return false;
  }
  return true;
}

}  // namespace

struct MpiThread::State {
  Mutex mu;
  CondVar for_thread;
  CondVar for_callers;
  const std::function<void()>* work ABSL_GUARDED_BY(mu) = nullptr;
  // A caller owns the thread, from before its work starts until it has seen the
  // end.
  bool taken ABSL_GUARDED_BY(mu) = false;
  bool stop ABSL_GUARDED_BY(mu) = false;
  // Numbers of works. Written with the lock held, read by who spins.
  std::atomic<int64_t> given{0};
  std::atomic<int64_t> done{0};
  // See kOurs.
  std::atomic<uint64_t> place{kOurs};
  // Only used by the thread.
  std::function<void()> idle;
  Thread thread;
};

MpiThread::MpiThread(absl::Duration patience)
    : patience_(patience), state_(new State) {
  state_->thread = Thread("mpi", [state = state_] { Main(*state); });
}

MpiThread::~MpiThread() {
  // Also waits for a call that does not return, as long as any work would.
  Deadline now(absl::ZeroDuration());
  // The thread itself says stop, so that it makes no more calls.
  [[maybe_unused]] const absl::Status settled = Run(
      [state = state_] {
        MutexLock lock(state->mu);
        state->stop = true;
      },
      now, [] { return true; });
  if (given_up()) return;
  {
    MutexLock lock(state_->mu);
    state_->stop = true;
    state_->for_thread.NotifyAll();
  }
  delete state_;
}

bool MpiThread::given_up() const {
  return (state_->place.load() & kWhere) == kGivenUp;
}

void MpiThread::SetIdleWork(std::function<void()> idle) {
  state_->idle = std::move(idle);
}

void MpiThread::Wake() {
  MutexLock lock(state_->mu);
  state_->for_callers.NotifyAll();
  state_->for_thread.NotifyAll();
}

void MpiThread::Pause(absl::Duration time) {
  MutexLock lock(state_->mu);
  state_->for_thread.WaitFor(state_->mu, time);
}

MpiThread::Call::Call(MpiThread& thread) : state_(*thread.state_) {
  std::atomic<uint64_t>& place = state_.place;
  // Only the thread leaves kOurs.
  place.store((place.load(std::memory_order_relaxed) & ~kWhere) + kNextCall +
              kInMpi);
}

MpiThread::Call::~Call() {
  State& state = state_;
  uint64_t here = state.place.load(std::memory_order_relaxed);
  const uint64_t back = (here & ~kWhere) | kOurs;
  if ((here & kWhere) == kInMpi &&
      state.place.compare_exchange_strong(here, back)) {
    return;
  }
  // Nothing that belongs to others may be touched from here on. Nobody notifies
  // this one.
  CondVar never;
  MutexLock lock(state.mu);
  while (true) never.Wait(state.mu);
}

absl::StatusOr<int64_t> MpiThread::Give(const std::function<void()>& work,
                                        const std::function<bool()>& wanted,
                                        Deadline& deadline) {
  State& state = *state_;
  MutexLock lock(state.mu);
  while (state.taken && !given_up()) {
    if (!wanted()) {
      return absl::DeadlineExceededError("the MPI thread was busy");
    }
    state.for_callers.WaitFor(state.mu, deadline.Left());
  }
  if (given_up()) return absl::UnavailableError(kLost);
  state.taken = true;
  state.work = &work;
  const int64_t number = state.given.load() + 1;
  state.given.store(number);
  state.for_thread.NotifyAll();
  return number;
}

absl::Status MpiThread::Run(const std::function<void()>& work,
                            Deadline& deadline,
                            const std::function<bool()>& over, Calls calls) {
  State& state = *state_;
  const auto wanted = [&] {
    return deadline.Left() > absl::ZeroDuration() && !over();
  };
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t number,
                             Give(work, wanted, deadline));
  const auto done = [&] { return state.done.load() >= number; };
  SpinUntil(done);
  MutexLock lock(state.mu);
  while (!done()) {
    const bool patient = wanted();
    if (patient && calls == Calls::kMayWait) {
      state.for_callers.WaitFor(state.mu, deadline.Left());
      continue;
    }
    const absl::Duration limit = patient ? kLongestCall * patience_ : patience_;
    uint64_t here = state.place.load();
    const auto changed = [&] {
      return done() || state.place.load() != here || wanted() != patient;
    };
    for (int part = 0; part < kParts; ++part) {
      Deadline end(limit / kParts);
      while (!changed() && end.Left() > absl::ZeroDuration()) {
        state.for_callers.WaitFor(state.mu, end.Left());
      }
    }
    if (changed() || (here & kWhere) != kInMpi) continue;
    // Fails if that call has returned just now.
    if (state.place.compare_exchange_strong(here,
                                            (here & ~kWhere) | kGivenUp)) {
      state.for_callers.NotifyAll();
      return absl::UnavailableError(kLost);
    }
  }
  state.taken = false;
  state.for_callers.NotifyAll();
  return absl::OkStatus();
}

void MpiThread::Idle(State& state, int& ticks) {
  if (SpinUntil([&] { return state.given.load() > state.done.load(); })) return;
  {
    MutexLock lock(state.mu);
    if (state.work != nullptr || state.stop) return;
    if (!state.idle) {
      state.for_thread.Wait(state.mu);
      return;
    }
    state.for_thread.WaitFor(state.mu,
                             ticks < kQuickTicks ? kQuickTick : kSlowTick);
    if (state.work != nullptr || state.stop) return;
  }
  ++ticks;
  state.idle();
}

void MpiThread::Main(State& state) {
  int ticks = 0;
  while (true) {
    const std::function<void()>* work = nullptr;
    {
      MutexLock lock(state.mu);
      if (state.stop) return;
      work = std::exchange(state.work, nullptr);
    }
    if (work == nullptr) {
      Idle(state, ticks);
      continue;
    }
    ticks = 0;
    (*work)();
    MutexLock lock(state.mu);
    state.done.store(state.done.load() + 1);
    state.for_callers.NotifyAll();
  }
}

}  // namespace elasticdl::collective
