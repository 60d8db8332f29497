#include "elasticdl/common/life_sign.h"

#include <signal.h>
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

// A process with a child that has its word, and that says how it ended.
class WithChild {
 public:
  explicit WithChild(bool takes_it) {
    int ends[2];
    int said[2];
    if (pipe(ends) != 0 || pipe(said) != 0) std::abort();
    pid_ = fork();
    if (pid_ != 0) {
      close(said[1]);
      close(ends[0]);
      said_.Reset(said[0]);
      to_.Reset(ends[1]);
      return;
    }
    const auto word = MakeOwnWord();
    if (!word.ok()) _exit(1);
    if (fork() == 0) {
      const char how = AwaitEnd(**word) ? 'k' : 'o';
      _exit(write(said[1], &how, 1) == 1 ? 0 : 1);
    }
    if (takes_it && !OwnLifeSign().ok()) _exit(1);
    char byte = 'r';
    if (write(said[1], &byte, 1) != 1) _exit(1);
    [[maybe_unused]] const ssize_t n = read(ends[0], &byte, 1);
    exit(0);
  }
  ~WithChild() { waitpid(pid_, nullptr, 0); }
  void Kill() { kill(pid_, SIGKILL); }
  void ExitInOrder() {
    const char byte = 0;
    ASSERT_EQ(write(to_.get(), &byte, 1), 1);
  }
  char Said() {
    char byte = 0;
    EXPECT_EQ(read(said_.get(), &byte, 1), 1);
    return byte;
  }

 private:
  Fd said_;
  Fd to_;
  pid_t pid_ = -1;
};

// The child may begin to wait before or after the word is taken.
TEST(OwnWordTest, AChildTellsADeathFromAnOrderlyEnd) {
  for (int i = 0; i < 50; ++i) {
    WithChild killed(true);
    WithChild orderly(true);
    ASSERT_EQ(killed.Said(), 'r');
    ASSERT_EQ(orderly.Said(), 'r');
    killed.Kill();
    orderly.ExitInOrder();
    EXPECT_EQ(killed.Said(), 'k');
    EXPECT_EQ(orderly.Said(), 'o');
  }
}

TEST(OwnWordTest, ItIsMadeOnce) {
  const pid_t pid = fork();
  if (pid == 0) {
    const bool once = MakeOwnWord().ok() && !MakeOwnWord().ok();
    const bool owned = OwnLifeSign().ok() && !MakeOwnWord().ok();
    _exit(once && owned ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace elasticdl
