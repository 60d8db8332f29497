// When workers wait for an evaluation, and who is told to go on.
#include "evaluation_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "task_fixture.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "done 10", "now".
class Outbox : public WorkerPort {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(
          message.has_evaluate_now()
              ? "now"
              : "done " + std::to_string(message.evaluation_done().step()));
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId, const absl::Status&) override {}
  void KillWorker(int64_t, const std::string&) override {}

  std::map<ConnectionId, std::vector<std::string>> sent;
};

class EvaluationRoundsTest : public ::testing::Test {
 protected:
  EvaluationRoundsTest() : tasks_(MakeTasks(Job())) {
    world_.generation = 1;
    world_.is_member = [](int64_t id) { return id < 2; };
    for (int64_t id = 0; id < 2; ++id) {
      Worker worker;
      worker.id = id;
      worker.ready = true;
      registry_.Add(10 + id, worker);
    }
  }
  static TaskManagerOptions Job() {
    TaskManagerOptions options = SmallJob();
    options.validation_shards = {MakeShard("v", 0, 20)};
    return options;
  }
  static EvaluationOptions EveryTenSteps() {
    EvaluationOptions options;
    options.evaluation_steps = 10;
    return options;
  }
  void Due(int64_t id, int64_t step, int64_t heard = -1) {
    v1::EvaluationDue due;
    due.set_step(step);
    due.set_heard(heard);
    rounds_.OnDue(At(0), *registry_.FindById(id), due, world_);
  }
  bool Waits(int64_t id) { return registry_.FindById(id)->waiting; }
  std::vector<std::string> Sent(int64_t id) {
    return std::exchange(outbox_.sent[10 + id], {});
  }
  static EvaluationResult ResultOf(int64_t version) {
    EvaluationResult result;
    result.version = version;
    return result;
  }

  TaskManager tasks_;
  EvaluationService evaluation_{EveryTenSteps(), tasks_, At(0)};
  WorkerRegistry registry_;
  Outbox outbox_;
  EvaluationRounds rounds_{evaluation_, tasks_, registry_, outbox_};
  EvaluationRounds::World world_;
};

TEST_F(EvaluationRoundsTest, AllWaitUntilTheResultIsThere) {
  Due(0, 10);
  EXPECT_TRUE(evaluation_.running());
  Due(1, 10);
  EXPECT_TRUE(Waits(0) && Waits(1));
  EXPECT_THAT(Sent(0), IsEmpty());
  rounds_.OnResult(ResultOf(10), world_);
  EXPECT_FALSE(Waits(0) || Waits(1));
  EXPECT_THAT(Sent(0), ElementsAre("done 10"));
  EXPECT_THAT(Sent(1), ElementsAre("done 10"));
}

TEST_F(EvaluationRoundsTest, WithoutAnEvaluationAllGoOnAtOnce) {
  Due(0, 7);
  EXPECT_FALSE(evaluation_.running());
  EXPECT_FALSE(Waits(0));
  EXPECT_THAT(Sent(0), ElementsAre("done 7"));
  EXPECT_THAT(Sent(1), ElementsAre("done 7"));
  // The other one says the same; the answer is on its way to it.
  Due(1, 7);
  EXPECT_FALSE(Waits(1));
  EXPECT_THAT(Sent(1), IsEmpty());
  // Unless it has heard it already and stands there again.
  Due(1, 7, /*heard=*/7);
  EXPECT_THAT(Sent(1), ElementsAre("done 7"));
}

TEST_F(EvaluationRoundsTest, OnlyMembersAreToldToGoOn) {
  Worker outsider;
  outsider.id = 5;
  outsider.ready = true;
  registry_.Add(15, outsider);
  Due(0, 7);
  EXPECT_THAT(Sent(0), ElementsAre("done 7"));
  EXPECT_THAT(Sent(5), IsEmpty());
}

TEST_F(EvaluationRoundsTest, TheLastOneBeginsWhenAllAreAtRest) {
  TaskManagerOptions options = Job();
  options.training_shards.clear();
  options.final_evaluation = true;
  tasks_ = MakeTasks(options);
  rounds_.Advance(At(0), world_);
  EXPECT_FALSE(evaluation_.running());
  world_.at_rest = true;
  rounds_.Advance(At(0), world_);
  EXPECT_TRUE(evaluation_.running());
}

TEST_F(EvaluationRoundsTest, OneByTimeIsAskedForOnce) {
  EvaluationOptions options;
  options.start_delay = absl::Seconds(5);
  options.throttle = absl::Seconds(60);
  EvaluationService by_time(options, tasks_, At(0));
  EvaluationRounds rounds(by_time, tasks_, registry_, outbox_);
  const absl::Time due = rounds.NextAsk();
  ASSERT_LT(due, absl::InfiniteFuture());
  rounds.Advance(due - absl::Seconds(1), world_);
  EXPECT_THAT(Sent(0), IsEmpty());
  rounds.Advance(due, world_);
  rounds.Advance(due, world_);
  EXPECT_THAT(Sent(0), ElementsAre("now"));
  EXPECT_THAT(Sent(1), ElementsAre("now"));
  EXPECT_EQ(rounds.NextAsk(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace elasticdl::master
