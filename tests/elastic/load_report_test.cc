#include "elasticdl/elastic/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::elastic {
namespace {

using ::testing::ElementsAre;

class LoadReportTest : public ::testing::Test {
 protected:
  LoadReport Make(absl::Duration limit) {
    return LoadReport(7, limit, [this](const v1::WorkerMessage& message) {
      const v1::Loading& loading = message.loading();
      EXPECT_EQ(loading.generation(), 7);
      sent_.push_back(absl::StrCat(v1::Loading::Stage_Name(loading.stage()),
                                   " ", loading.bytes(), "/",
                                   loading.total_bytes()));
    });
  }
  static absl::Time At(double seconds) {
    return absl::UnixEpoch() + absl::Seconds(seconds);
  }

  std::vector<std::string> sent_;
};

TEST_F(LoadReportTest, TellsStagesAtOnceAndBytesOnceASecond) {
  LoadReport report = Make(absl::Minutes(2));
  report.Tell(At(0), v1::Loading::LOADING);
  report.Tell(At(0.5), v1::Loading::LOADING, 10, 100);
  report.Tell(At(1), v1::Loading::LOADING, 20, 100);
  report.Tell(At(1.9), v1::Loading::LOADING, 30, 100);
  report.Tell(At(1.9), v1::Loading::LOADED);
  report.Tell(At(1.9), v1::Loading::MOVING, 8, 80);
  EXPECT_THAT(sent_, ElementsAre("LOADING 0/0", "LOADING 20/100", "LOADED 0/0",
                                 "MOVING 8/80"));
}

TEST_F(LoadReportTest, TellsSeveralTimesWithinAShortLimit) {
  LoadReport report = Make(absl::Seconds(1));
  for (int i = 0; i < 100; ++i) {
    report.Tell(At(i * 0.01), v1::Loading::LOADING, i, 100);
  }
  EXPECT_THAT(sent_, ElementsAre("LOADING 0/100", "LOADING 25/100",
                                 "LOADING 50/100", "LOADING 75/100"));
}

}  // namespace
}  // namespace elasticdl::elastic
