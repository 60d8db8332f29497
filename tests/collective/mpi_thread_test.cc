// The thread for MPI, and what happens when a call does not return.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "mpi/thread.h"

namespace elasticdl::collective {
namespace {

constexpr absl::Duration kLong = absl::Seconds(40);

bool Never() { return false; }

// Something that blocks like a call into MPI.
class Gate {
 public:
  void Pass() {
    MutexLock lock(mu_);
    entered_ = true;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mu_);
    ++passed_;
    changed_.NotifyAll();
  }
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void WaitUntilEntered() {
    MutexLock lock(mu_);
    while (!entered_) changed_.Wait(mu_);
  }
  void WaitUntilPassed() {
    MutexLock lock(mu_);
    while (passed_ == 0) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool entered_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  int passed_ ABSL_GUARDED_BY(mu_) = 0;
};

// Never freed: whoever blocks in it may be given up.
Gate* NewGate() {
  static auto* const gates = new std::vector<std::unique_ptr<Gate>>;
  gates->push_back(std::make_unique<Gate>());
  return gates->back().get();
}

TEST(MpiThreadTest, RunsWorkInOrder) {
  MpiThread thread(kLong);
  int sum = 0;
  for (int i = 0; i < 1000; ++i) {
    Deadline deadline(kLong);
    ASSERT_TRUE(thread
                    .Run(
                        [&] {
                          const MpiThread::Call call(thread);
                          sum = sum * 2 % 997 + i;
                        },
                        deadline, Never)
                    .ok());
  }
  int expected = 0;
  for (int i = 0; i < 1000; ++i) expected = expected * 2 % 997 + i;
  EXPECT_EQ(sum, expected);
}

TEST(MpiThreadTest, SeveralCallersTakeTurns) {
  MpiThread thread(kLong);
  std::atomic<int> inside{0};
  int total = 0;
  {
    std::vector<Thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back("caller", [&] {
        for (int k = 0; k < 200; ++k) {
          Deadline deadline(kLong);
          EXPECT_TRUE(thread
                          .Run(
                              [&] {
                                EXPECT_EQ(inside.fetch_add(1), 0);
                                ++total;
                                inside.fetch_sub(1);
                              },
                              deadline, Never)
                          .ok());
        }
      });
    }
  }
  EXPECT_EQ(total, 800);
}

TEST(MpiThreadTest, ACallThatDoesNotReturnIsGivenUpAfterTheDeadline) {
  Gate* const gate = NewGate();
  MpiThread thread(absl::Milliseconds(40));
  Deadline deadline(absl::Milliseconds(10));
  deadline.nanos();
  bool touched = false;
  const absl::Status status = thread.Run(
      [&] {
        {
          const MpiThread::Call call(thread);
          gate->Pass();
        }
        touched = true;
      },
      deadline, Never);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(thread.given_up());
  // It comes back, but not into our code.
  gate->Open();
  gate->WaitUntilPassed();
  Deadline next(kLong);
  EXPECT_TRUE(absl::IsUnavailable(thread.Run([] {}, next, Never)));
  EXPECT_FALSE(touched);
}

// MPI_Init may come back when everybody has gone on without it.
TEST(MpiThreadTest, ACallMayReturnWhenTheThreadsOwnerIsGone) {
  Gate* const gate = NewGate();
  auto thread = std::make_unique<MpiThread>(absl::Milliseconds(10));
  Deadline deadline(absl::Milliseconds(10));
  deadline.nanos();
  EXPECT_TRUE(absl::IsUnavailable(thread->Run(
      [mpi = thread.get(), gate] {
        Gate* const mine = gate;
        const MpiThread::Call call(*mpi);
        mine->Pass();
      },
      deadline, Never, MpiThread::Calls::kMayWait)));
  thread.reset();
  gate->Open();
  gate->WaitUntilPassed();
}

TEST(MpiThreadTest, ACallThatShouldReturnAtOnceIsGivenUpBeforeTheDeadline) {
  Gate* const gate = NewGate();
  MpiThread thread(absl::Milliseconds(10));
  Deadline deadline(kLong);
  deadline.nanos();
  EXPECT_TRUE(absl::IsUnavailable(thread.Run(
      [&] {
        const MpiThread::Call call(thread);
        gate->Pass();
      },
      deadline, Never)));
}

TEST(MpiThreadTest, ACallThatMayWaitHasUntilTheDeadline) {
  Gate* const gate = NewGate();
  MpiThread thread(absl::Milliseconds(1));
  Deadline deadline(kLong);
  deadline.nanos();
  Thread opener("opener", [&] {
    gate->WaitUntilEntered();
    Mutex mu;
    CondVar never;
    MutexLock lock(mu);
    never.WaitFor(mu, absl::Milliseconds(100));
    gate->Open();
  });
  const absl::Status status = thread.Run(
      [&] {
        const MpiThread::Call call(thread);
        gate->Pass();
      },
      deadline, Never, MpiThread::Calls::kMayWait);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MpiThreadTest, TheEndOfTheWorldCountsLikeTheDeadline) {
  Gate* const gate = NewGate();
  std::atomic<bool> over{false};
  MpiThread thread(absl::Milliseconds(40));
  Thread ender("ender", [&] {
    gate->WaitUntilEntered();
    over.store(true);
    thread.Wake();
  });
  Deadline deadline(kLong);
  deadline.nanos();
  EXPECT_TRUE(absl::IsUnavailable(thread.Run(
      [&] {
        const MpiThread::Call call(thread);
        gate->Pass();
      },
      deadline, [&] { return over.load(); })));
}

// Many calls that all return are not one that does not.
TEST(MpiThreadTest, WorkThatMakesCallsIsNotGivenUp) {
  // A busy machine may take the core away during a call.
  MpiThread thread(absl::Seconds(1));
  Deadline deadline(absl::ZeroDuration());
  deadline.nanos();
  Deadline busy(absl::Seconds(2));
  busy.nanos();
  const absl::Status status = thread.Run(
      [&] {
        while (busy.Left() > absl::ZeroDuration()) {
          const MpiThread::Call call(thread);
        }
      },
      deadline, Never);
  EXPECT_TRUE(status.ok()) << status;
}

// Nor is our own code, however long it takes.
TEST(MpiThreadTest, WorkOutsideOfMpiIsNotGivenUp) {
  Gate* const gate = NewGate();
  MpiThread thread(absl::Milliseconds(20));
  Deadline deadline(absl::ZeroDuration());
  deadline.nanos();
  Thread opener("opener", [&] {
    gate->WaitUntilEntered();
    Mutex mu;
    CondVar never;
    MutexLock lock(mu);
    never.WaitFor(mu, absl::Milliseconds(200));
    gate->Open();
  });
  const absl::Status status =
      thread.Run([&] { gate->Pass(); }, deadline, Never);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(MpiThreadTest, ABusyThreadKeepsOthersWaitingUntilTheirDeadline) {
  Gate* const gate = NewGate();
  MpiThread thread(kLong);
  Thread first("first", [&] {
    Deadline deadline(kLong);
    EXPECT_TRUE(thread.Run([&] { gate->Pass(); }, deadline, Never).ok());
  });
  gate->WaitUntilEntered();
  Deadline deadline(absl::Milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(thread.Run([] {}, deadline, Never)));
  gate->Open();
}

TEST(MpiThreadTest, IdleWorkRunsBetweenWorksAndMayBlock) {
  Gate* const gate = NewGate();
  auto thread = std::make_unique<MpiThread>(absl::Milliseconds(40));
  MpiThread& mpi = *thread;
  Deadline deadline(kLong);
  ASSERT_TRUE(mpi.Run(
                     [&] {
                       mpi.SetIdleWork([&mpi, gate] {
                         const MpiThread::Call call(mpi);
                         gate->Pass();
                       });
                     },
                     deadline, Never)
                  .ok());
  gate->WaitUntilEntered();
  Deadline soon(absl::Milliseconds(10));
  EXPECT_TRUE(absl::IsUnavailable(mpi.Run([] {}, soon, Never)));
  // Does not wait for it.
  thread.reset();
}

}  // namespace
}  // namespace elasticdl::collective
