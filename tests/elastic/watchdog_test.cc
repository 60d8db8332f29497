#include "elasticdl/elastic/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/common/queue.h"

namespace elasticdl::elastic {
namespace {

TEST(WatchdogTest, NamesWhatTakesTooLong) {
  Queue<std::string> reports(10);
  Watchdog watchdog(absl::Milliseconds(20),
                    [&](const std::string& where, absl::Duration age) {
                      EXPECT_GE(age, absl::Milliseconds(20));
                      reports.Push(where);
                    });
  const Watchdog::Watch watch(&watchdog, "forward", 12);
  const auto report = reports.Pop(absl::Seconds(30));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(*report, "forward of step 12");
  // Once is enough.
  EXPECT_FALSE(reports.Pop(absl::Milliseconds(60)).has_value());
}

TEST(WatchdogTest, IsSilentAboutWhatEnds) {
  Queue<std::string> reports(10);
  Watchdog watchdog(
      absl::Seconds(20),
      [&](const std::string& where, absl::Duration) { reports.Push(where); });
  for (int i = 0; i < 1000; ++i) {
    const Watchdog::Watch watch(&watchdog, "feed");
  }
  EXPECT_EQ(reports.size(), 0u);
}

TEST(WatchdogTest, WithoutALimitItNeverReports) {
  bool reported = false;
  {
    Watchdog watchdog(
        absl::ZeroDuration(),
        [&](const std::string&, absl::Duration) { reported = true; });
    const Watchdog::Watch watch(&watchdog, "feed");
  }
  EXPECT_FALSE(reported);
}

}  // namespace
}  // namespace elasticdl::elastic
