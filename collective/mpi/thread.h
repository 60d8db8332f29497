// The thread that makes all calls into MPI. It can be abandoned when a call
// does not return.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/deadline.h"

namespace elasticdl::collective {

// Thread-safe, unless said otherwise.
class MpiThread {
  // Survives this object if the thread was given up.
  struct State;

 public:
  // A call into MPI whose result is no longer needed is abandoned after
  // `patience`, and one that should return at once after four times that.
  explicit MpiThread(absl::Duration patience);
  // Waits for the thread, unless it was given up.
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Do the calls that a work makes wait for other processes?
  enum class Calls { kReturnAtOnce, kMayWait };

  // Runs `work` on the thread and returns when it has. `work` must return soon
  // after `deadline` has passed or `over` is true; Wake says that this may have
  // changed. `over` is called with a lock held and must not call this object.
  //
  // UNAVAILABLE if the thread was given up, now or before: then `work` is not
  // running any of our code, and will not, but MPI may still use the memory
  // that it was given. DEADLINE_EXCEEDED if other work took all the time.
  absl::Status Run(const std::function<void()>& work, Deadline& deadline,
                   const std::function<bool()>& over,
                   Calls calls = Calls::kReturnAtOnce);
  void Wake();
  // The thread runs this between works, often at first and seldom later.
  // Called once, on the thread.
  void SetIdleWork(std::function<void()> idle);

  bool given_up() const;

  // On the thread, around each call into MPI. If the thread was given up
  // meanwhile, it never gets beyond the destructor; between the return of MPI
  // and that, nothing but the thread's own stack may be touched.
  class Call {
   public:
    explicit Call(MpiThread& thread);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    // Not the MpiThread, which may be gone when the call returns.
    State& state_;
  };
  // On the thread: waits for a moment, or until Wake.
  void Pause(absl::Duration time);

 private:
  static void Main(State& state);
  static void Idle(State& state, int& ticks);
  // Takes the thread for `work`.
  absl::StatusOr<int64_t> Give(const std::function<void()>& work,
                               const std::function<bool()>& wanted,
                               Deadline& deadline);

  const absl::Duration patience_;
  // Owned, but never freed once the thread was given up.
  State* const state_;
};

}  // namespace elasticdl::collective
