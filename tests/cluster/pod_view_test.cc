// States of pods as servers write them.
#include "elasticdl/cluster/pod_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::cluster {
namespace {

using ::testing::HasSubstr;

PodView View(const std::string& text) { return ViewPod(Json::parse(text)); }

TEST(PodViewTest, PendingWithTheSchedulersWords) {
  const PodView view = View(R"({
    "metadata": {"name": "p", "uid": "u", "labels": {
      "elasticdl-job-name": "j", "elasticdl-replica-type": "master"}},
    "status": {"phase": "Pending", "conditions": [
      {"type": "Initialized", "status": "True"},
      {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
       "message": "0/3 nodes are available: 3 Insufficient cpu."}]}})");
  EXPECT_EQ(view.name, "p");
  EXPECT_EQ(view.job_name, "j");
  EXPECT_EQ(view.type, "master");
  EXPECT_EQ(view.State(), "pending");
  EXPECT_FALSE(view.started);
  EXPECT_FALSE(view.Ended());
  EXPECT_EQ(view.waiting,
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.");
}

TEST(PodViewTest, ImageThatCannotBePulled) {
  const PodView view = View(R"({"status": {"phase": "Pending",
    "containerStatuses": [{"restartCount": 0, "state": {"waiting": {
      "reason": "ErrImagePull", "message": "not found"}}}]}})");
  EXPECT_EQ(view.waiting, "ErrImagePull: not found");
  EXPECT_TRUE(View(R"({"status": {"phase": "Pending", "containerStatuses": [
    {"state": {"waiting": {"reason": "ContainerCreating"}}}]}})")
                  .waiting.empty());
}

TEST(PodViewTest, RunningAgainAfterACrash) {
  const PodView view = View(R"({"status": {"phase": "Running",
    "containerStatuses": [{"restartCount": 2, "state": {"running": {}},
      "lastState": {"terminated": {"exitCode": 137,
                                   "reason": "OOMKilled"}}}]}})");
  EXPECT_TRUE(view.running);
  EXPECT_TRUE(view.started);
  EXPECT_EQ(view.restarts, 2);
  EXPECT_EQ(view.exit_code, 137);
  EXPECT_EQ(view.end_reason, "OOMKilled");
  EXPECT_FALSE(view.Ended());
  EXPECT_EQ(view.State(), "running");
}

TEST(PodViewTest, SucceededAndFailed) {
  PodView view = View(R"({"status": {"phase": "Succeeded",
    "containerStatuses": [{"state": {"terminated": {
      "exitCode": 0, "reason": "Completed"}}}]}})");
  EXPECT_TRUE(view.Ended());
  EXPECT_EQ(view.ExitCode(), 0);
  EXPECT_EQ(view.State(), "succeeded");
  EXPECT_EQ(view.end_reason, "");
  view = View(R"({"status": {"phase": "Failed",
    "containerStatuses": [{"state": {"terminated": {
      "exitCode": 4, "reason": "Error"}}}]}})");
  EXPECT_TRUE(view.Ended());
  EXPECT_EQ(view.ExitCode(), 4);
  view = View(R"({"status": {"phase": "Failed", "reason": "Evicted",
    "message": "The node was low on memory."}})");
  EXPECT_EQ(view.ExitCode(), 1);
  EXPECT_EQ(view.end_reason, "Evicted: The node was low on memory.");
}

TEST(PodViewTest, TheMastersNotesCount) {
  // Noted as failed, the kubelet is about to start the container again.
  const std::string head =
      R"({"metadata": {"annotations": {"elasticdl/outcome": "failed",
          "elasticdl/message": "no worker is left"}}, "status": )";
  PodView view = View(head + R"({"phase": "Running", "containerStatuses": [
    {"state": {"terminated": {"exitCode": 3}}}]}})");
  EXPECT_TRUE(view.Ended());
  EXPECT_EQ(view.ExitCode(), 3);
  EXPECT_EQ(view.State(), "failed");
  EXPECT_EQ(view.outcome_message, "no worker is left");
  // Ended by the deadline, without a word on the container.
  view = View(head + R"({"phase": "Failed", "reason": "DeadlineExceeded"}})");
  EXPECT_TRUE(view.Ended());
  EXPECT_EQ(view.ExitCode(), 1);
  view = View(head + R"({"phase": "Running", "containerStatuses": [
    {"state": {"running": {}}}]}})");
  EXPECT_FALSE(view.Ended());
}

TEST(PodViewTest, DeadlineThatEndedThePodEndsItsContainer) {
  // As a kubelet of 1.20 leaves it.
  const PodView view = View(R"({"metadata": {"annotations": {
      "elasticdl/outcome": "failed", "elasticdl/exit-code": "4",
      "elasticdl/message": "stopped"}},
    "status": {"phase": "Failed", "reason": "DeadlineExceeded",
      "containerStatuses": [{"restartCount": 0, "lastState": {},
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}})");
  EXPECT_FALSE(view.running);
  EXPECT_TRUE(view.started);
  EXPECT_TRUE(view.Ended());
  EXPECT_EQ(view.ExitCode(), 4);
}

TEST(PodViewTest, SucceededOutcomeIsZeroWhateverThePodSays) {
  const PodView view =
      View(R"({"metadata": {"annotations": {"elasticdl/outcome": "succeeded"}},
    "status": {"phase": "Failed", "reason": "DeadlineExceeded"}})");
  EXPECT_EQ(view.ExitCode(), 0);
}

TEST(PodViewTest, EndedByItsDeadlineWithAContainerThatRunsForEver) {
  // As kubelet 1.20 leaves it.
  const PodView view = View(R"({"metadata": {"annotations": {
      "elasticdl/outcome": "failed", "elasticdl/exit-code": "3",
      "elasticdl/message": "no worker is left"}},
    "status": {"phase": "Failed", "reason": "DeadlineExceeded",
      "message": "Pod was active on the node longer than the deadline",
      "containerStatuses": [{"state": {"running": {}}}]}})");
  EXPECT_TRUE(view.Ended());
  EXPECT_FALSE(view.running);
  EXPECT_EQ(view.ExitCode(), 3);
  EXPECT_EQ(view.outcome_message, "no worker is left");
  EXPECT_EQ(view.end_reason, "");
}

TEST(PodViewTest, ProgramThatIsNotInTheImage) {
  const PodView view = View(R"({"status": {"phase": "Running",
    "containerStatuses": [{"restartCount": 1, "state": {"waiting": {
       "reason": "CrashLoopBackOff", "message": "back-off 10s"}},
      "lastState": {"terminated": {"exitCode": 128, "reason": "StartError",
        "message": "exec: elasticdl-master: not found"}}}]}})");
  EXPECT_FALSE(view.started);
  EXPECT_THAT(view.end_reason, HasSubstr("elasticdl-master: not found"));
  EXPECT_THAT(view.waiting, HasSubstr("CrashLoopBackOff"));
  EXPECT_EQ(view.State(), "restarting");
}

TEST(PodViewTest, StrangeDataDoesNoHarm) {
  for (const char* text :
       {"null", "[]", "{}", R"({"status": 1})", R"({"metadata": []})",
        R"({"status": {"containerStatuses": {}, "conditions": 7}})",
        R"({"status": {"phase": "Pending", "conditions": [1, null]}})",
        R"({"status": {"containerStatuses": [3]}})",
        R"({"status": {"containerStatuses": [{"state": {"terminated": {
            "exitCode": "x"}}, "restartCount": "many"}]}})"}) {
    const PodView view = View(text);
    EXPECT_FALSE(view.running) << text;
    EXPECT_FALSE(view.Ended()) << text;
  }
}

}  // namespace
}  // namespace elasticdl::cluster
