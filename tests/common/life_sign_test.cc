#include "elasticdl/common/life_sign.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <vector>

#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl {
namespace {

constexpr auto kLong = std::chrono::seconds(30);

// A process with a life sign. It ends when it is killed, or in order when it
// is told to.
class Child {
 public:
  Child() {
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) Live(up[1], down[0]);
    close(up[1]);
    close(down[0]);
    const Fd from(up[0]);
    to_.Reset(down[1]);
    char id[16];
    EXPECT_EQ(read(from.get(), &sign_.fd, sizeof(sign_.fd)),
              static_cast<ssize_t>(sizeof(sign_.fd)));
    EXPECT_EQ(read(from.get(), id, sizeof(id)),
              static_cast<ssize_t>(sizeof(id)));
    sign_.pid = pid_;
    sign_.id.assign(id, sizeof(id));
  }
  ~Child() {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  void Kill() { kill(pid_, SIGKILL); }
  void ExitInOrder() {
    char told = 1;
    ASSERT_EQ(write(to_.get(), &told, 1), 1);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
  }
  const LifeSign& sign() const { return sign_; }

 private:
  [[noreturn]] static void Live(int up, int down) {
    const auto own = OwnLifeSign();
    // Asked twice, it is the same.
    if (!own.ok() || own->pid != getpid() || OwnLifeSign()->id != own->id ||
        write(up, &own->fd, sizeof(own->fd)) < 0 ||
        write(up, own->id.data(), own->id.size()) < 0) {
      _exit(1);
    }
    char told = 0;
    [[maybe_unused]] const ssize_t bytes = read(down, &told, 1);
    exit(0);
  }

  pid_t pid_ = -1;
  Fd to_;
  LifeSign sign_;
};

// An event that a callback makes.
class Event {
 public:
  std::function<void()> Callback() {
    return [this] {
      ++calls_;
      promise_.set_value();
    };
  }
  bool Happens() {
    return promise_.get_future().wait_for(kLong) == std::future_status::ready;
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_{0};
  std::promise<void> promise_;
};

TEST(LifeSignTest, AKilledProcessIsNoticed) {
  Child child;
  Event died;
  LifeWatch watch;
  ASSERT_TRUE(watch.Add(child.sign(), died.Callback()).ok());
  child.Kill();
  EXPECT_TRUE(died.Happens());
}

TEST(LifeSignTest, OneOfSeveralIsNoticed) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 4; ++i) children.push_back(std::make_unique<Child>());
  std::vector<Event> died(children.size());
  LifeWatch watch;
  for (size_t i = 0; i < children.size(); ++i) {
    ASSERT_TRUE(watch.Add(children[i]->sign(), died[i].Callback()).ok());
  }
  for (const size_t i : {2, 0, 3, 1}) {
    EXPECT_EQ(died[i].calls(), 0);
    children[i]->Kill();
    EXPECT_TRUE(died[i].Happens());
  }
}

// The kernel wakes one of them; it must wake the others.
TEST(LifeSignTest, AllWhoWatchAreTold) {
  Child child;
  std::vector<Event> died(5);
  std::vector<LifeWatch> watches(died.size());
  for (size_t i = 0; i < died.size(); ++i) {
    ASSERT_TRUE(watches[i].Add(child.sign(), died[i].Callback()).ok());
  }
  child.Kill();
  for (Event& event : died) EXPECT_TRUE(event.Happens());
}

TEST(LifeSignTest, AProcessThatExitsInOrderIsNotReported) {
  Child orderly;
  Child killed;
  Event exited;
  Event died;
  LifeWatch watch;
  ASSERT_TRUE(watch.Add(orderly.sign(), exited.Callback()).ok());
  ASSERT_TRUE(watch.Add(killed.sign(), died.Callback()).ok());
  orderly.ExitInOrder();
  killed.Kill();
  // A thread that had seen the first would report it before the second.
  EXPECT_TRUE(died.Happens());
  EXPECT_EQ(exited.calls(), 0);
}

TEST(LifeSignTest, NothingIsReportedAfterRemove) {
  Child removed;
  Child killed;
  Event first;
  Event second;
  LifeWatch watch;
  const auto number = watch.Add(removed.sign(), first.Callback());
  ASSERT_TRUE(number.ok());
  ASSERT_TRUE(watch.Add(killed.sign(), second.Callback()).ok());
  watch.Remove(*number);
  removed.Kill();
  killed.Kill();
  EXPECT_TRUE(second.Happens());
  EXPECT_EQ(first.calls(), 0);
}

TEST(LifeSignTest, AProcessThatIsDeadAlreadyIsNotFound) {
  LifeSign sign;
  {
    Child child;
    sign = child.sign();
  }
  LifeWatch watch;
  EXPECT_TRUE(absl::IsNotFound(watch.Add(sign, [] {}).status()));
}

TEST(LifeSignTest, AnotherPageIsNotTakenForIt) {
  Child child;
  LifeWatch watch;
  LifeSign other = child.sign();
  other.id[3] = static_cast<char>(other.id[3] + 1);
  EXPECT_TRUE(absl::IsNotFound(watch.Add(other, [] {}).status()));
  other.id = "short";
  EXPECT_TRUE(absl::IsNotFound(watch.Add(other, [] {}).status()));
  // Standard input, which may be anything.
  LifeSign input = child.sign();
  input.fd = 0;
  EXPECT_FALSE(watch.Add(input, [] {}).ok());
  LifeSign none = child.sign();
  none.fd = -1;
  EXPECT_FALSE(watch.Add(none, [] {}).ok());
}

TEST(LifeSignTest, TooManyAreRefused) {
  Child child;
  std::vector<Event> died(127);
  LifeWatch watch;
  for (Event& event : died) {
    ASSERT_TRUE(watch.Add(child.sign(), event.Callback()).ok());
  }
  EXPECT_TRUE(
      absl::IsResourceExhausted(watch.Add(child.sign(), [] {}).status()));
  child.Kill();
  for (Event& event : died) EXPECT_TRUE(event.Happens());
}

// Destroyed while a process dies: whether the callback runs or not, it does not
// run afterwards.
TEST(LifeSignTest, AWatchMayEndAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    Child child;
    std::atomic<bool> over{false};
    {
      LifeWatch watch;
      ASSERT_TRUE(
          watch.Add(child.sign(), [&over] { EXPECT_FALSE(over.load()); }).ok());
      child.Kill();
    }
    over = true;
  }
}

// A process for which its parent has made the page.
class GivenChild {
 public:
  // `adopts` before it takes the page; it may also leave it alone.
  explicit GivenChild(bool adopts) {
    auto given = MakeGivenLifeSign();
    if (!given.ok()) std::abort();
    given_ = *std::move(given);
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) std::abort();
    taken_.Reset(up[0]);
    to_.Reset(down[1]);
    pid_ = fork();
    if (pid_ == 0) {
      // It ends when the test does.
      to_.Reset();
      if (adopts && (!AdoptLifeSign(given_.fd.get()).ok() ||
                     OwnLifeSign()->fd != given_.fd.get())) {
        _exit(1);
      }
      char byte = 0;
      if (write(up[1], &byte, 1) != 1) _exit(1);
      [[maybe_unused]] const ssize_t bytes = read(down[0], &byte, 1);
      exit(0);
    }
    close(up[1]);
    close(down[0]);
  }
  ~GivenChild() {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  void Kill() { kill(pid_, SIGKILL); }
  void AwaitTaken() {
    char byte = 0;
    ASSERT_EQ(read(taken_.get(), &byte, 1), 1);
  }
  void ExitInOrder() {
    to_.Reset();
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
  }
  const LifeSign& sign() const { return given_.sign; }

 private:
  GivenLifeSign given_;
  Fd taken_;
  Fd to_;
  pid_t pid_ = -1;
};

TEST(GivenLifeSignTest, AKilledProcessIsNoticed) {
  GivenChild child(true);
  Event died;
  LifeWatch watch;
  ASSERT_TRUE(watch.Add(child.sign(), died.Callback()).ok());
  child.AwaitTaken();
  child.Kill();
  EXPECT_TRUE(died.Happens());
}

// The page is watched before, while and after the process takes it.
TEST(GivenLifeSignTest, ItMayBeWatchedAtAnyTime) {
  for (int i = 0; i < 50; ++i) {
    GivenChild child(true);
    Event died;
    LifeWatch watch;
    if (i % 2 == 0) child.AwaitTaken();
    ASSERT_TRUE(watch.Add(child.sign(), died.Callback()).ok());
    if (i % 2 != 0) child.AwaitTaken();
    child.Kill();
    EXPECT_TRUE(died.Happens());
  }
}

TEST(GivenLifeSignTest, NothingIsReportedIfItEndsInOrderOrDoesNotTakeThePage) {
  GivenChild orderly(true);
  GivenChild indifferent(false);
  GivenChild killed(true);
  Event exited;
  Event ignored;
  Event died;
  LifeWatch watch;
  ASSERT_TRUE(watch.Add(orderly.sign(), exited.Callback()).ok());
  ASSERT_TRUE(watch.Add(indifferent.sign(), ignored.Callback()).ok());
  ASSERT_TRUE(watch.Add(killed.sign(), died.Callback()).ok());
  orderly.AwaitTaken();
  indifferent.AwaitTaken();
  killed.AwaitTaken();
  orderly.ExitInOrder();
  indifferent.Kill();
  killed.Kill();
  EXPECT_TRUE(died.Happens());
  EXPECT_EQ(exited.calls(), 0);
  EXPECT_EQ(ignored.calls(), 0);
}

TEST(GivenLifeSignTest, OnlyAFreePageIsAdopted) {
  const auto refused = [](int fd) {
    return absl::IsInvalidArgument(AdoptLifeSign(fd));
  };
  EXPECT_TRUE(refused(-1));
  EXPECT_TRUE(refused(1));
  const Fd null(open("/dev/null", O_RDWR));
  EXPECT_TRUE(refused(null.get()));
  // Somebody could cut it.
  const Fd unsealed(memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_TRUE(refused(unsealed.get()));
  // Another process has it.
  GivenChild child(true);
  child.AwaitTaken();
  EXPECT_TRUE(refused(child.sign().fd));
  child.ExitInOrder();
  EXPECT_TRUE(refused(child.sign().fd));
}

}  // namespace
}  // namespace elasticdl
