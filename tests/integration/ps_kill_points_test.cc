// Servers and workers that die at a certain point of what only random chaos
// reaches otherwise: while the log is sent to a backup, while a backup gets a
// snapshot, while a snapshot is written, while a checkpoint is read or written.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/ps_backups.h"

namespace elasticdl::test {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// How many processes of a kind were killed by SIGKILL.
int64_t CountKilled(const std::vector<Json>& events, const std::string& pod) {
  int64_t count = 0;
  for (const Json& event : events) {
    count +=
        event.at("event") == "pod_ended" &&
        absl::StrContains(event.at("pod").get<std::string>(), pod) &&
        absl::StrContains(event.at("reason").get<std::string>(), "signal 9");
  }
  return count;
}

bool WaitForKilled(Job& job, const std::string& pod, int64_t count) {
  return job.WaitUntil(absl::StrCat("end of ", pod), [&](const auto& events) {
    return CountKilled(events, pod) >= count;
  });
}

// ---- without backups ----

// A push is 80 KB for each of two servers, a job has 600: a snapshot is due
// every 50 pushes. Each successor counts anew.
class PsKillInSnapshotTest : public PsChaosTest,
                             public testing::WithParamInterface<ModeAndPoint> {
};
INSTANTIATE_TEST_SUITE_P(
    Points, PsKillInSnapshotTest,
    testing::Combine(testing::Values(kAsync, kSync),
                     testing::Values("0:ps.snapshot=kill@3",
                                     "0:ps.snapshot_written=kill@3")),
    [](const auto& info) { return NameOf(info); });

TEST_P(PsKillInSnapshotTest, NothingIsLost) {
  Flags flags = FlagsOf(GetParam());
  flags.push_back("--ps_snapshot_bytes=4000000");
  const auto job = StartPs("snapshot", 2, 2, flags);
  Finish(*job);
  EXPECT_GE(CountKilled(job->Events(), "elasticdl-ps-snapshot-0"), 1);
}

// A worker in a checkpoint: there is one every 40 steps, and a process dies in
// its second or third. The next one counts anew.
class PsKillInCheckpointTest
    : public PsChaosTest,
      public testing::WithParamInterface<ModeAndPoint> {};
INSTANTIATE_TEST_SUITE_P(
    Points, PsKillInCheckpointTest,
    testing::Combine(testing::Values(kAsync, kSync),
                     testing::Values("worker.read_model=kill@2",
                                     "checkpoint.write=kill@12",
                                     "checkpoint.fsync=kill@15",
                                     "checkpoint.rename=kill@2")),
    [](const auto& info) { return NameOf(info); });

TEST_P(PsKillInCheckpointTest, TheNextOneIsWhole) {
  Flags flags = FlagsOf(GetParam());
  flags.push_back("--checkpoint_steps=40");
  const auto job = StartPs("saves", 2, 2, flags);
  Finish(*job);
  EXPECT_GE(CountKilled(job->Events(), "elasticdl-worker-"), 1);
  const std::vector<int64_t> versions = Versions(Path("saves-saved"));
  ASSERT_THAT(versions, Not(IsEmpty()));
  EXPECT_EQ(versions.back(), kMinibatches);
}

class PsModeTest : public PsChaosTest,
                   public testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PsModeTest, testing::Values(kAsync, kSync),
                         [](const auto& info) { return info.param.name; });

// A server dies with what it was to read for a checkpoint.
TEST_P(PsModeTest, AServerDiesWhileACheckpointIsRead) {
  Flags flags = GetParam().flags;
  flags.push_back("--checkpoint_steps=40");
  flags.push_back("--failpoints=0:ps.read=kill@12");
  const auto job = StartPs("read", 2, 2, flags);
  Finish(*job);
  EXPECT_GE(CountKilled(job->Events(), "elasticdl-ps-read-0"), 1);
  EXPECT_EQ(Versions(Path("read-saved")).back(), kMinibatches);
}

// The model is read, and its files are written, when both servers die.
TEST_P(PsModeTest, ServersDieWhileACheckpointIsWritten) {
  Flags flags = GetParam().flags;
  flags.push_back("--checkpoint_steps=40");
  flags.push_back("--failpoints=checkpoint.rename=delay(1500)@1x1");
  const std::string saved = Path("written-saved");
  const auto job = StartPs("written", 2, 2, flags);
  Walk();
  ASSERT_TRUE(WaitForFile(saved));
  FolderWatch watch(saved);
  ASSERT_TRUE(watch.Until([&] {
    for (const std::string& name : List(saved)) {
      if (absl::StartsWith(name, ".tmp-version-")) return true;
    }
    return false;
  })) << job->Output();
  ASSERT_THAT(Versions(saved), IsEmpty());
  Kill(*job, "ps", 0);
  Kill(*job, "ps", 1);
  Finish(*job);
  EXPECT_GE(CountKilled(job->Events(), "elasticdl-ps-written-"), 2);
  EXPECT_EQ(Versions(saved).back(), kMinibatches);
}

// ---- with backups ----

class PsKillInBackupTest : public PsBackups,
                           public testing::WithParamInterface<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PsKillInBackupTest,
                         testing::Values(kAsync, kSync),
                         [](const auto& info) { return info.param.name; });

// An entry is in the log of the primary, and its backup has not got it.
TEST_P(PsKillInBackupTest, WhileAnEntryIsSent) {
  Flags flags = GetParam().flags;
  flags.push_back("--failpoints=0:ps.replicate=kill@60");
  const auto job = StartBackedUp("send", 2, flags);
  Walk();
  ASSERT_TRUE(WaitForKilled(*job, "elasticdl-ps-send-0", 1)) << job->Output();
  Finish(*job);
}

// A primary dies while it gives its backup a snapshot, of its own part and of
// one that it has taken over a moment ago.
TEST_P(PsKillInBackupTest, WhileABackupIsMade) {
  Flags flags = GetParam().flags;
  // So that there are snapshots to send. Server 0 has sent one at most before
  // server 1 is lost, and sends two after each loss of it: its own part's and
  // that of the part that it has taken over. It dies once, because its
  // successor sends no more than two.
  flags.insert(flags.end(), {"--ps_snapshot_bytes=200000",
                             "--failpoints=0:ps.synchronize=kill@3"});
  const auto job = StartBackedUp("make", 2, flags);
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 20));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  LoseNode(*job, "make", 1);
  const auto died = [](const auto& events) {
    return CountKilled(events, "elasticdl-ps-make-0") > 0;
  };
  const auto current = [](const auto& events) {
    // Both parts again after the takeover.
    int64_t backups = 0;
    for (const Json& event : events) {
      if (event.at("event") == "ps_takeover") backups = 0;
      backups += event.at("event") == "ps_backup_current";
    }
    return Count(events, "ps_takeover", 1) > 0 && backups >= 2;
  };
  ASSERT_TRUE(job->WaitUntil("a death or new backups", [&](auto& events) {
    return died(events) || current(events);
  })) << job->Output();
  if (!died(job->Events())) LoseNode(*job, "make", 1);
  ASSERT_TRUE(job->WaitUntil("the death of server 0", died)) << job->Output();
  Finish(*job);
}

// A primary with a backup dies while it writes a snapshot, and its successor
// follows the new primary in the same folder.
TEST_P(PsKillInBackupTest, WhileItsSnapshotIsWritten) {
  Flags flags = GetParam().flags;
  flags.insert(flags.end(), {"--ps_snapshot_bytes=4000000",
                             "--failpoints=0:ps.snapshot=kill@4"});
  const auto job = StartBackedUp("snap", 2, flags);
  Finish(*job);
  EXPECT_GE(CountKilled(job->Events(), "elasticdl-ps-snap-0"), 1);
}

}  // namespace
}  // namespace elasticdl::test
