// `elasticdl scale --num_ps_pods` in jobs with --ps_backup=1: buckets and
// backups move while servers are killed and lost, and every value is exact.
#include <memory>
#include <string>

#include "integration/ps_backups.h"

namespace elasticdl::test {
namespace {

class PsBackupMoveTest : public PsBackups,
                         public testing::WithParamInterface<Mode> {
 protected:
  std::unique_ptr<Job> Start(const std::string& name, int64_t servers) {
    return StartBackedUp(name, servers, GetParam().flags);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, PsBackupMoveTest,
                         testing::Values(kAsync, kSync),
                         [](const auto& info) { return info.param.name; });

TEST_P(PsBackupMoveTest, MoreAndFewerServers) {
  const auto job = Start("scale", 2);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  ScaleServers(*job, 3);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  ASSERT_TRUE(WaitForBackups(*job, 3)) << job->Output();
  // The part that is new survives the loss of its server.
  LoseNode(*job, "scale", 2);
  ASSERT_TRUE(WaitForTakeover(*job, 2)) << job->Output();
  ASSERT_TRUE(WaitForBackups(*job, 3)) << job->Output();
  ScaleServers(*job, 2);
  ASSERT_TRUE(WaitForMove(*job, 2, 2)) << job->Output();
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  LoseNode(*job, "scale", 1);
  ASSERT_TRUE(WaitForTakeover(*job, 1)) << job->Output();
  Finish(*job);
}

// The primary of the last part is on the server that goes.
TEST_P(PsBackupMoveTest, PartsAreHandedOver) {
  const auto job = Start("hand", 3);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ASSERT_TRUE(WaitForBackups(*job, 3)) << job->Output();
  Kill(*job, "ps", 1);
  ASSERT_TRUE(WaitForTakeover(*job, 1)) << job->Output();
  ScaleServers(*job, 2);
  ASSERT_TRUE(WaitForMove(*job, 1, 2)) << job->Output();
  ASSERT_TRUE(WaitForTakeover(*job, 1, 2)) << job->Output();
  ASSERT_TRUE(WaitForBackups(*job, 2)) << job->Output();
  Finish(*job);
}

TEST_P(PsBackupMoveTest, ServersDieMeanwhile) {
  const auto job = Start("die", 2);
  Stroll();
  ASSERT_TRUE(WaitForSteps(*job, 10));
  ScaleServers(*job, 3);
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 30));
  Kill(*job, "ps", 1);
  ASSERT_TRUE(WaitForMove(*job, 1, 3)) << job->Output();
  Kill(*job, "ps", 2);
  ScaleServers(*job, 2);
  Kill(*job, "ps", 1);
  ASSERT_TRUE(WaitForMove(*job, 2, 2)) << job->Output();
  Finish(*job);
}

// A server dies again and again at one point of a move or of a copy.
class PsBackupMoveKillTest : public PsBackups,
                             public testing::WithParamInterface<ModeAndPoint> {
};
INSTANTIATE_TEST_SUITE_P(
    Points, PsBackupMoveKillTest,
    testing::Combine(testing::Values(kAsync, kSync),
                     testing::Values("2:ps.import=kill@20", "2:ps.moved=kill@6",
                                     "0:ps.move=kill@6", "0:ps.fetch=kill@20",
                                     "2:ps.follow=kill@30",
                                     "ps.apply=kill@900")),
    NameOf);

TEST_P(PsBackupMoveKillTest, TheMoveGoesOn) {
  const auto job = StartBackedUp("point", 2, FlagsOf(GetParam()));
  CheckMove(*job);
}

}  // namespace
}  // namespace elasticdl::test
