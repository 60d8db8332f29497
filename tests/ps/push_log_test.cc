// The log of a parameter server: whatever happens to the process or the file,
// what was acknowledged comes back, bit by bit.
#include "push_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/file.h"
#include "model.h"
#include "support/small_disk.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using ::testing::HasSubstr;

class PushLogTest : public testing::Test {
 protected:
  // A server without sockets.
  struct Process {
    ServerState state{ServerState::Options{0, 0}};
    std::unique_ptr<PushLog> log;
    absl::Status opened;

    absl::Status Accept(const EntryBytes& part) {
      absl::Status status = state.Check(part.entry, part.payload);
      if (!status.ok()) return status;
      status = log->Append(part.entry.SerializeAsString(), part.payload);
      if (!status.ok()) return status;
      return state.Apply(part.entry, part.payload);
    }
  };

  std::unique_ptr<Process> Start(int64_t snapshot_bytes = int64_t{1} << 40) {
    auto process = std::make_unique<Process>();
    const ServerState::Options options{0, memory_limit_};
    process->state = ServerState(options);
    auto log = PushLog::Open({dir_.Path("log"), snapshot_bytes}, options,
                             process->state);
    process->opened = log.status();
    if (log.ok()) process->log = *std::move(log);
    return process;
  }
  std::unique_ptr<Process> StartDefined() {
    auto process = Start();
    EXPECT_TRUE(process->opened.ok()) << process->opened;
    v1::PsEntry entry;
    *entry.mutable_definition() = definition_;
    EXPECT_TRUE(process->Accept({entry, ""}).ok());
    *entry.mutable_map() = ToProto(map_);
    EXPECT_TRUE(process->Accept({entry, ""}).ok());
    EXPECT_TRUE(process->Accept(InitialPart(definition_, map_, 0)).ok());
    return process;
  }
  void PushOne(Process& process) {
    const Gradient gradient = RandomGradient(definition_, next_++, random_);
    ASSERT_TRUE(process.Accept(PartOf(gradient, definition_, map_, 0)).ok());
  }
  static void WaitForSnapshot(Process& process) {
    pollfd wait = {process.log->snapshot_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 60000), 1);
    const absl::Status finished = process.log->FinishSnapshot();
    ASSERT_TRUE(finished.ok()) << finished;
  }
  // The newest one.
  std::string FindFile(const std::string& prefix) {
    int64_t newest = -1;
    const auto names = ListDirectory(dir_.Path("log"));
    for (const std::string& name : *names) {
      int64_t number = 0;
      if (name.rfind(prefix, 0) == 0 &&
          absl::SimpleAtoi(name.substr(prefix.size()), &number)) {
        newest = std::max(newest, number);
      }
    }
    return dir_.Path(absl::StrCat("log/", prefix, newest));
  }

  test::TempDir dir_;
  v1::PsDefinition definition_ = TestDefinition("Adam");
  size_t memory_limit_ = 0;
  const BucketMap map_ = BucketMap::Even(1);
  std::mt19937_64 random_{1};
  int64_t next_ = 0;
};

TEST_F(PushLogTest, ARestartFindsEverything) {
  auto process = StartDefined();
  for (int i = 0; i < 10; ++i) PushOne(*process);
  const uint64_t digest = process->state.Digest();
  process.reset();
  process = Start();
  ASSERT_TRUE(process->opened.ok()) << process->opened;
  EXPECT_EQ(process->state.Digest(), digest);
  EXPECT_EQ(process->log->position(), 13);
  PushOne(*process);
  const uint64_t next = process->state.Digest();
  process.reset();
  EXPECT_EQ(Start()->state.Digest(), next);
}

TEST_F(PushLogTest, ASnapshotStandsForTheLogBeforeIt) {
  auto process = StartDefined();
  for (int i = 0; i < 5; ++i) PushOne(*process);
  ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
  // The state goes on while the child writes.
  for (int i = 0; i < 5; ++i) PushOne(*process);
  WaitForSnapshot(*process);
  for (int i = 0; i < 5; ++i) PushOne(*process);
  const uint64_t digest = process->state.Digest();
  process.reset();
  EXPECT_THAT(FindFile("snapshot-"), HasSubstr("snapshot-8"));
  process = Start();
  ASSERT_TRUE(process->opened.ok()) << process->opened;
  EXPECT_EQ(process->state.Digest(), digest);
  EXPECT_EQ(process->log->position(), 18);
}

// A backup may have begun to read what was there before a restart.
TEST_F(PushLogTest, TheFirstSnapshotAfterARestartKeepsWhatIsRead) {
  auto process = StartDefined();
  for (int i = 0; i < 5; ++i) PushOne(*process);
  process.reset();
  process = Start();
  ASSERT_TRUE(process->opened.ok()) << process->opened;
  for (int i = 0; i < 5; ++i) PushOne(*process);
  ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
  pollfd wait = {process->log->snapshot_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 60000), 1);
  ASSERT_TRUE(process->log->FinishSnapshot(/*keep=*/0).ok());
  EXPECT_TRUE(FileExists(dir_.Path("log/log-0")));
  EXPECT_TRUE(FileExists(dir_.Path("log/log-8")));
}

// Logs and snapshots that are large enough are read by two threads.
TEST_F(PushLogTest, ManyRowsComeBackBitByBit) {
  constexpr int64_t kRows = 30000;
  const v1::PsDefinition plain = definition_;
  // In the middle of the pushes, without a limit.
  size_t half_bytes = 0;
  for (const char* kind :
       {"plain", "bfloat16", "counted", "bounded", "no limit", "limit"}) {
    SCOPED_TRACE(kind);
    ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
    definition_ = plain;
    auto& odd = *definition_.mutable_tables(1);
    if (kind[0] == 'b' && kind[1] == 'f') odd.set_dtype(kind);
    if (kind[0] == 'c') odd.set_min_count(2);
    if (kind[0] == 'b' && kind[1] == 'o') odd.set_max_rows(20000);
    // Near the limit, the rows of both tables decide what is evicted.
    if (kind[0] == 'l' || kind[0] == 'n') odd.set_max_rows(40000);
    memory_limit_ = kind[0] == 'l' ? half_bytes * 21 / 20 : 0;
    auto process = StartDefined();
    for (int i = 0; i < 40; ++i) {
      Gradient gradient = RandomGradient(definition_, next_++, random_);
      for (int t = 0; t < definition_.tables_size() && i % 10 == 0; ++t) {
        const auto table = static_cast<size_t>(t);
        gradient.ids[table].clear();
        for (int64_t row = 0; row < kRows; ++row) {
          gradient.ids[table].push_back(1000 + row * 3 + i / 10);
        }
        gradient.rows[table].assign(
            static_cast<size_t>(kRows * definition_.tables(t).dim()), 0.25f);
      }
      const absl::Status accepted =
          process->Accept(PartOf(gradient, definition_, map_, 0));
      ASSERT_TRUE(accepted.ok() || memory_limit_ > 0) << accepted;
      if (i == 15) half_bytes = process->state.Bytes();
    }
    EXPECT_EQ(process->state.NearlyFull(), memory_limit_ > 0);
    const uint64_t digest = process->state.Digest();
    process.reset();
    process = Start();
    ASSERT_TRUE(process->opened.ok()) << process->opened;
    EXPECT_EQ(process->state.Digest(), digest);
    ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
    WaitForSnapshot(*process);
    process.reset();
    process = Start();
    ASSERT_TRUE(process->opened.ok()) << process->opened;
    EXPECT_EQ(process->state.Digest(), digest);
  }
}

// The counted bytes fall when the rows of a bucket go from a small piece of
// memory to a slab. What was accepted because of that is accepted when the log
// is read, where rows are collected before they are applied.
TEST_F(PushLogTest, MemoryIsNotCheckedAgain) {
  constexpr int kFilled = 100;
  const auto push = [&](Process& process, const std::vector<int64_t>& ids) {
    Gradient gradient = RandomGradient(definition_, next_++, random_);
    for (size_t t = 0; t < gradient.ids.size(); ++t) {
      gradient.ids[t].clear();
      gradient.rows[t].clear();
    }
    gradient.ids[0] = ids;
    gradient.rows[0].assign(
        ids.size() * static_cast<size_t>(definition_.tables(0).dim()), 0.25f);
    return process.Accept(PartOf(gradient, definition_, map_, 0));
  };
  auto process = StartDefined();
  const EmbeddingTable& table = *process->state.tables()[0];
  // One more row in each of some buckets, with each push. The first one fills
  // a slab, of a page that has room for more.
  std::vector<std::vector<int64_t>> steps;
  std::vector<int64_t> many;
  std::vector<size_t> rows_in(kFilled);
  for (int64_t id = 0; id < 200000; ++id) {
    const int bucket = BucketOf(HashRow(table.hash(), id));
    if (bucket >= kFilled) {
      if (many.size() < 20000) many.push_back(id);
      continue;
    }
    const size_t rows = rows_in[static_cast<size_t>(bucket)]++;
    if (bucket == 0 && rows >= kFilled) continue;
    const size_t step = bucket == 0 ? 0 : rows;
    steps.resize(std::max(steps.size(), step + 1));
    steps[step].push_back(id);
  }
  size_t step = 0;
  size_t before = 0;
  size_t limit_before = 0;
  do {
    ASSERT_LT(step, steps.size()) << "the bytes never fell";
    before = process->state.Bytes();
    limit_before = before + table.GrowthBy(many, true).bytes;
    ASSERT_TRUE(push(*process, steps[step++]).ok());
  } while (process->state.Bytes() >= before);
  memory_limit_ = process->state.Bytes() + table.GrowthBy(many, true).bytes;
  ASSERT_LT(memory_limit_, limit_before);
  process.reset();
  ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
  next_ = 0;
  process = StartDefined();
  for (size_t i = 0; i + 1 < step; ++i) {
    ASSERT_TRUE(push(*process, steps[i]).ok());
  }
  // What follows is collected.
  ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
  WaitForSnapshot(*process);
  ASSERT_TRUE(push(*process, steps[step - 1]).ok());
  const absl::Status accepted = push(*process, many);
  ASSERT_TRUE(accepted.ok()) << accepted;
  const uint64_t digest = process->state.Digest();
  process.reset();
  process = Start();
  ASSERT_TRUE(process->opened.ok()) << process->opened;
  EXPECT_EQ(process->state.Digest(), digest);
}

// Kills at any moment: of the server, of the child that writes a snapshot, with
// or without a torn last entry.
TEST_F(PushLogTest, RandomSchedules) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
    next_ = 0;
    random_.seed(seed);
    auto process = StartDefined();
    uint64_t digest = process->state.Digest();
    for (int i = 0; i < 30; ++i) {
      const uint64_t action = random_() % 10;
      if (action < 5) {
        PushOne(*process);
        digest = process->state.Digest();
      } else if (action < 7 && !process->log->snapshotting()) {
        ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
      } else if (action < 8 && process->log->snapshotting()) {
        WaitForSnapshot(*process);
      } else if (action >= 8) {
        // The destructor kills the child wherever it is.
        process.reset();
        if (random_() % 2 == 0) {
          const std::string path = FindFile("log-");
          const int fd = open(path.c_str(), O_WRONLY | O_APPEND);
          ASSERT_GE(fd, 0);
          const std::string torn(1 + random_() % 31, 'x');
          ASSERT_EQ(write(fd, torn.data(), torn.size()),
                    static_cast<ssize_t>(torn.size()));
          close(fd);
        }
        process = Start();
        ASSERT_TRUE(process->opened.ok()) << process->opened;
        ASSERT_EQ(process->state.Digest(), digest);
      }
    }
  }
}

TEST_F(PushLogTest, HalfAnEntryIsDropped) {
  auto process = StartDefined();
  PushOne(*process);
  const uint64_t digest = process->state.Digest();
  const std::string path = FindFile("log-");
  const std::string whole = *ReadFile(path);
  PushOne(*process);
  process.reset();
  const std::string more = *ReadFile(path);
  for (size_t size = whole.size() + 1; size < more.size();
       size += (more.size() - whole.size()) / 7) {
    ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
    ASSERT_TRUE(MakeDirectories(dir_.Path("log")).ok());
    ASSERT_TRUE(WriteFileAtomic(path, more.substr(0, size)).ok());
    process = Start();
    ASSERT_TRUE(process->opened.ok()) << process->opened;
    EXPECT_EQ(process->state.Digest(), digest);
    EXPECT_EQ(*ReadFile(path), whole);
  }
}

// The machine lost its power: the file has its length, but its last pages were
// never written.
TEST_F(PushLogTest, AnEndOfZerosIsDropped) {
  auto process = StartDefined();
  PushOne(*process);
  const uint64_t digest = process->state.Digest();
  const std::string path = FindFile("log-");
  const std::string whole = *ReadFile(path);
  PushOne(*process);
  process.reset();
  const std::string more = *ReadFile(path);
  const size_t entry = more.size() - whole.size();
  // Written of the last entry: nothing, some of its head, its head, some of it.
  for (const size_t written : {size_t{0}, size_t{8}, size_t{24}, size_t{32},
                               entry / 16 * 8, entry - 8}) {
    for (const size_t behind : {size_t{0}, size_t{8}, size_t{5000}}) {
      SCOPED_TRACE(testing::Message() << written << " + " << behind);
      std::string torn = more.substr(0, whole.size() + written);
      torn.resize(more.size() + behind);
      ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
      ASSERT_TRUE(MakeDirectories(dir_.Path("log")).ok());
      ASSERT_TRUE(WriteFileAtomic(path, torn).ok());
      process = Start();
      ASSERT_TRUE(process->opened.ok()) << process->opened;
      EXPECT_EQ(process->state.Digest(), digest);
      EXPECT_EQ(*ReadFile(path), whole);
      process.reset();
    }
  }
  // Zeros in the middle are no end.
  std::string hole = more;
  std::fill_n(hole.begin() + static_cast<int64_t>(whole.size()) / 2, 4096, 0);
  ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
  ASSERT_TRUE(MakeDirectories(dir_.Path("log")).ok());
  ASSERT_TRUE(WriteFileAtomic(path, hole).ok());
  EXPECT_TRUE(absl::IsDataLoss(Start()->opened));
}

TEST_F(PushLogTest, ABadEntryIsDataLoss) {
  auto process = StartDefined();
  for (int i = 0; i < 3; ++i) PushOne(*process);
  process.reset();
  const std::string path = FindFile("log-");
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(pwrite(fd, "xxxx", 4, 5000), 4);
  close(fd);
  process = Start();
  EXPECT_TRUE(absl::IsDataLoss(process->opened)) << process->opened;
  EXPECT_THAT(std::string(process->opened.message()), HasSubstr("bad entry"));
}

// Its successor, perhaps with another log, would take it for one of its own.
TEST_F(PushLogTest, AKilledServerLeavesNoSnapshotThatComesLater) {
  // Orphans become children of this process.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  // The child that writes it waits for somebody who reads this file.
  const std::string slow = dir_.Path("log/snapshot-0.new");
  const pid_t server = fork();
  ASSERT_GE(server, 0);
  if (server == 0) {
    const auto process = Start();
    const bool begun = process->opened.ok() &&
                       mkfifo(slow.c_str(), 0600) == 0 &&
                       process->log->BeginSnapshot(process->state).ok();
    if (begun) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(server, &status, 0), server);
  ASSERT_TRUE(WIFSIGNALED(status));
  // Nobody is held up any more.
  const Fd reader(open(slow.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  ASSERT_GT(waitpid(-1, &status, 0), 0);
  // Or it found at its beginning that its parent was gone.
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  const bool gave_up = WIFEXITED(status) && WEXITSTATUS(status) == ESRCH;
  EXPECT_TRUE(killed || gave_up) << status;
  EXPECT_FALSE(FileExists(dir_.Path("log/snapshot-0")));
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST_F(PushLogTest, ABadSnapshotIsNoticed) {
  auto process = StartDefined();
  PushOne(*process);
  ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
  WaitForSnapshot(*process);
  process.reset();
  const std::string path = FindFile("snapshot-");
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(pwrite(fd, "xxxx", 4, 5000), 4);
  close(fd);
  process = Start();
  EXPECT_TRUE(absl::IsDataLoss(process->opened)) << process->opened;
  EXPECT_THAT(std::string(process->opened.message()),
              HasSubstr("entries 0 to 4 of the log are missing"));
}

// That is no reason to do without its rows, nor to throw the log away.
TEST_F(PushLogTest, ASnapshotThatCannotBeReadNowIsNotSkipped) {
  auto process = StartDefined();
  PushOne(*process);
  ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
  WaitForSnapshot(*process);
  PushOne(*process);
  const uint64_t digest = process->state.Digest();
  process.reset();
  const std::string path = FindFile("snapshot-");
  const std::string away = dir_.Path("away");
  ASSERT_EQ(rename(path.c_str(), away.c_str()), 0);
  // The kernel does not map a folder.
  ASSERT_TRUE(MakeDirectories(path).ok());
  process = Start();
  EXPECT_FALSE(process->opened.ok());
  EXPECT_FALSE(absl::IsDataLoss(process->opened)) << process->opened;
  ASSERT_TRUE(RemoveTree(path).ok());
  ASSERT_EQ(rename(away.c_str(), path.c_str()), 0);
  process = Start();
  ASSERT_TRUE(process->opened.ok()) << process->opened;
  EXPECT_EQ(process->state.Digest(), digest);
}

TEST_F(PushLogTest, ADamagedLogIsPutAside) {
  const std::string dir = dir_.Path("log");
  auto process = StartDefined();
  PushOne(*process);
  process.reset();
  const std::string path = FindFile("log-");
  const std::string whole = *ReadFile(path);
  ASSERT_TRUE(PushLog::PutAside(dir).ok());
  EXPECT_TRUE(PushLog::HasAside(dir));
  // It begins anew, and that log goes bad, too.
  process = StartDefined();
  EXPECT_EQ(process->log->position(), 3);
  ASSERT_TRUE(process->log->Restart("", 0).ok());
  process.reset();
  ASSERT_TRUE(PushLog::PutAside(dir).ok());
  EXPECT_EQ(*ReadFile(dir_.Path("log/damaged/log-0")), whole);
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(PushLog::RemoveAside(dir).ok());
  EXPECT_FALSE(PushLog::HasAside(dir));
}

TEST_F(PushLogTest, OneProcessAtATime) {
  auto first = StartDefined();
  auto second = Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(second->opened)) << second->opened;
  first.reset();
  EXPECT_TRUE(Start()->opened.ok());
}

// As a snapshot of another log does, until it has closed what it need not have.
TEST_F(PushLogTest, AForkedProcessDoesNotKeepTheLock) {
  auto process = StartDefined();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  process.reset();
  EXPECT_TRUE(Start()->opened.ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(PushLogTest, AFailedWriteLeavesNothing) {
  auto process = StartDefined();
  PushOne(*process);
  const uint64_t digest = process->state.Digest();
  ASSERT_TRUE(InitFailpoints("ps.log=error", 0).ok());
  const Gradient gradient = RandomGradient(definition_, next_, random_);
  EXPECT_FALSE(process->Accept(PartOf(gradient, definition_, map_, 0)).ok());
  ASSERT_TRUE(InitFailpoints("", 0).ok());
  EXPECT_EQ(process->state.Digest(), digest);
  PushOne(*process);
  const uint64_t after = process->state.Digest();
  process.reset();
  EXPECT_EQ(Start()->state.Digest(), after);
}

// The disk has room for the log, but not for a snapshot beside it.
TEST_F(PushLogTest, ASnapshotDoesNotTakeTheLogsSpace) {
  const auto fill = [&] {
    auto process = StartDefined();
    for (int i = 0; i < 4; ++i) PushOne(*process);
    // When it has written everything, the child waits.
    ASSERT_TRUE(InitFailpoints("ps.snapshot_end=stop").ok());
    ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
    ASSERT_TRUE(InitFailpoints("").ok());
    for (int i = 0; i < 6; ++i) PushOne(*process);
    EXPECT_FALSE(process->log->snapshotting());
    const uint64_t digest = process->state.Digest();
    process.reset();
    EXPECT_EQ(Start()->state.Digest(), digest);
  };
  // 10 pushes of 330 KB, and a state of 1 MB.
  if (!test::RunOnSmallDisk(dir_.path(), "4m", fill)) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  }
}

TEST_F(PushLogTest, SnapshotsAreWantedAsTheLogGrows) {
  { auto process = StartDefined(); }
  auto process = Start(/*snapshot_bytes=*/1 << 20);
  int taken = 0;
  for (int i = 0; i < 40; ++i) {
    PushOne(*process);
    if (!process->log->WantsSnapshot()) continue;
    ++taken;
    ASSERT_TRUE(process->log->BeginSnapshot(process->state).ok());
    WaitForSnapshot(*process);
    EXPECT_FALSE(process->log->WantsSnapshot());
  }
  // 40 pushes of 330 KB, a state of 1 MB.
  EXPECT_GE(taken, 3);
  EXPECT_LE(taken, 14);
}

}  // namespace
}  // namespace elasticdl::ps
