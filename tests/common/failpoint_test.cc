#include "elasticdl/common/failpoint.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace elasticdl {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(InitFailpoints("").ok()); }
};

TEST_F(FailpointTest, UnarmedIsOk) { EXPECT_TRUE(Failpoint("a.b").ok()); }

TEST_F(FailpointTest, ErrorHitsTheNamedVisitsOnly) {
  ASSERT_TRUE(InitFailpoints("a.b=error@2x2;other=error").ok());
  EXPECT_TRUE(Failpoint("a.b").ok());
  EXPECT_EQ(Failpoint("a.b").code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(Failpoint("a.b").ok());
  EXPECT_TRUE(Failpoint("a.b").ok());
  EXPECT_FALSE(Failpoint("other").ok());
  EXPECT_TRUE(Failpoint("unknown").ok());
}

TEST_F(FailpointTest, HitsTheNamedWorkerOnly) {
  constexpr char kText[] = "2:a.b=error;13:c=error;d=error";
  ASSERT_TRUE(InitFailpoints(kText, 2).ok());
  EXPECT_FALSE(Failpoint("a.b").ok());
  EXPECT_TRUE(Failpoint("c").ok());
  EXPECT_FALSE(Failpoint("d").ok());
  ASSERT_TRUE(InitFailpoints(kText, 1).ok());
  EXPECT_TRUE(Failpoint("a.b").ok());
  EXPECT_FALSE(Failpoint("d").ok());
  // A process that is no worker.
  ASSERT_TRUE(InitFailpoints(kText).ok());
  EXPECT_TRUE(Failpoint("c").ok());
  EXPECT_FALSE(Failpoint("d").ok());
}

TEST_F(FailpointTest, RejectsBadSpecifications) {
  for (const char* bad :
       {"a", "a=", "=error", "a=explode", "a=error@0", "a=exit(x)", "a=errorx0",
        "a=delay", "a=delay(-1)", "x:a=kill", "-1:a=kill", "1:=kill"}) {
    const absl::Status status = InitFailpoints(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find(bad), std::string::npos) << status;
  }
}

TEST_F(FailpointTest, DelayWaits) {
  ASSERT_TRUE(InitFailpoints("a=delay(20)x1").ok());
  const absl::Time before = absl::Now();
  EXPECT_TRUE(Failpoint("a").ok());
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(19));
}

TEST_F(FailpointTest, KillAndExitEndTheProcess) {
  EXPECT_EXIT(
      {
        InitFailpoints("a=exit(7)").IgnoreError();
        Failpoint("a").IgnoreError();
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        InitFailpoints("a=kill@2").IgnoreError();
        Failpoint("a").IgnoreError();
        Failpoint("a").IgnoreError();
      },
      testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace elasticdl
