// elasticdl kill: which pods it kills, and what it says.
#include "kill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class FakeJob : public JobHandle {
 public:
  explicit FakeJob(absl::StatusOr<std::string> status)
      : status_(std::move(status)) {}
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::string> Get(const std::string& what) override {
    EXPECT_EQ(what, "status");
    return status_;
  }
  absl::Status Scale(int64_t, int64_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Stop(const StopRequest&) override { return ""; }
  bool WaitEnd(absl::Duration) override { return false; }
  JobEnd End() override { return {}; }
  absl::Status Logs(const LogRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<JobPage> OpenPage(int) override { return JobPage{}; }

 private:
  const std::string name_ = "j";
  const absl::StatusOr<std::string> status_;
};

class KillTest : public ::testing::Test {
 protected:
  // Exit code; what it says is in out_ and err_.
  int Kill(const std::vector<std::string>& args) {
    killed_.clear();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = KillCommand(
        args,
        [&](const JobChoice&) -> absl::StatusOr<std::unique_ptr<JobHandle>> {
          return std::make_unique<FakeJob>(status_);
        },
        [&](const JobChoice&, const DoomedPod& pod, bool notice) {
          killed_.push_back(
              absl::StrCat(pod.name, " ", pod.pid, notice ? " notice" : ""));
          return answer_;
        });
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  absl::StatusOr<std::string> status_ =
      R"({"pods":[{"name":"elasticdl-worker-j-0","pid":100},
                  {"name":"elasticdl-worker-j-10","pid":101},
                  {"name":"elasticdl-ps-j-0-r1","pid":102},
                  {"pid":1}, 7]})";
  absl::Status answer_;
  std::vector<std::string> killed_;
  std::string out_;
  std::string err_;
};

TEST_F(KillTest, KillsByNameOrNumber) {
  EXPECT_EQ(Kill({"0"}), 0);
  EXPECT_THAT(killed_, ElementsAre("elasticdl-worker-j-0 100"));
  EXPECT_EQ(out_, "elasticdl-worker-j-0: killed\n");
  EXPECT_EQ(Kill({"worker-0"}), 0);
  EXPECT_THAT(killed_, ElementsAre("elasticdl-worker-j-0 100"));
  EXPECT_EQ(Kill({"--notice", "ps-0", "elasticdl-worker-j-10"}), 0);
  EXPECT_THAT(killed_, ElementsAre("elasticdl-ps-j-0-r1 102 notice",
                                   "elasticdl-worker-j-10 101 notice"));
}

TEST_F(KillTest, TellsTheTimeAsJson) {
  EXPECT_EQ(Kill({"--json", "0"}), 0);
  EXPECT_THAT(
      out_, MatchesRegex(
                R"(\{"pod":"elasticdl-worker-j-0","time":[0-9]+\.?[0-9]*\}.)"));
}

TEST_F(KillTest, KillsNoneIfOneIsUnknown) {
  EXPECT_EQ(Kill({"0", "3"}), 1);
  EXPECT_THAT(killed_, IsEmpty());
  EXPECT_THAT(err_, AllOf(HasSubstr("no pod '3' is running; there are: "),
                          HasSubstr("elasticdl-worker-j-10")));
  EXPECT_EQ(Kill({""}), 1);
  EXPECT_THAT(killed_, IsEmpty());
}

TEST_F(KillTest, SaysWhatWentWrong) {
  answer_ = absl::UnavailableError("no answer");
  EXPECT_EQ(Kill({"0"}), 1);
  EXPECT_EQ(err_, "elasticdl kill: elasticdl-worker-j-0: no answer\n");
  status_ = absl::FailedPreconditionError("job j is not running");
  EXPECT_EQ(Kill({"0"}), 1);
  EXPECT_EQ(err_, "elasticdl kill: job j is not running\n");
  status_ = "not json";
  EXPECT_EQ(Kill({"0"}), 1);
  EXPECT_THAT(killed_, IsEmpty());
}

}  // namespace
}  // namespace elasticdl::cli
