#include "job_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller_handle.h"

namespace elasticdl::master {
namespace {

using testing::HasSubstr;

// Remembers what the controller wants.
class Recorder : public WorkerPort, public JobObserver {
 public:
  void Send(const std::vector<ConnectionId>& connections,
            v1::MasterMessage message) override {
    for (const ConnectionId connection : connections) {
      sent[connection].push_back(message);
    }
  }
  void SendToServer(int, v1::MasterMessage) override {}
  void Close(ConnectionId connection, const absl::Status& status) override {
    closed[connection] = status;
  }
  void KillWorker(int64_t worker_id, const std::string& reason) override {
    killed.push_back(worker_id);
  }
  void OnWorkerReady(int64_t, int64_t, int64_t) override {}
  void OnWorkerLost(int64_t worker_id, const std::string& reason) override {
    lost.push_back(absl::StrCat(worker_id, ": ", reason));
  }
  void OnCommit(const CommittedRange& range, int64_t step,
                int64_t generation) override {
    committed.emplace_back(step, range.end - range.begin);
  }
  void OnCutBack(int64_t step) override { cut_backs.push_back(step); }
  void OnKeptGivenUp(int64_t step, const std::string&) override {
    given_up.push_back(step);
  }
  void OnProgress(const v1::Progress&, int64_t) override {}
  void OnWorld(const WorldChange& world) override { worlds.push_back(world); }
  void OnFirstStep(int64_t, int64_t) override {}
  void OnCheckpoint(const v1::CheckpointDone&) override {}
  void OnEvaluation(const EvaluationResult& result) override {
    evaluations.push_back(result);
  }
  void OnTaskDone(int64_t records) override { done_records += records; }
  void OnQuarantined(const QuarantinedRange&) override { ++quarantined; }
  void OnServersScaled(int) override { FAIL() << "there are no servers"; }
  void OnPart(const PartChange&) override {}
  void OnMessage(const std::string& text) override { messages.push_back(text); }

  // Takes the messages of one kind out of a connection's box.
  std::vector<v1::MasterMessage> Take(ConnectionId connection,
                                      v1::MasterMessage::MessageCase kind) {
    std::vector<v1::MasterMessage> taken;
    std::vector<v1::MasterMessage> left;
    for (v1::MasterMessage& message : sent[connection]) {
      (message.message_case() == kind ? taken : left)
          .push_back(std::move(message));
    }
    sent[connection] = std::move(left);
    return taken;
  }

  std::map<ConnectionId, std::vector<v1::MasterMessage>> sent;
  std::map<ConnectionId, absl::Status> closed;
  std::vector<int64_t> killed;
  std::vector<std::string> lost;
  std::vector<std::pair<int64_t, int64_t>> committed;
  std::vector<int64_t> cut_backs;
  std::vector<int64_t> given_up;
  std::vector<WorldChange> worlds;
  std::vector<EvaluationResult> evaluations;
  int64_t done_records = 0;
  int quarantined = 0;
  std::vector<std::string> messages;
};

v1::LedgerShard MakeShard(const std::string& name, int64_t records) {
  v1::LedgerShard shard;
  shard.set_name(name);
  shard.set_end(records);
  return shard;
}

class JobControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.job.set_job_type(v1::TRAINING_ONLY);
    options_.job.set_minibatch_size(10);
    options_.tasks.training_shards = {MakeShard("train", 100)};
    options_.tasks.minibatch_size = 10;
    options_.tasks.num_minibatches_per_task = 2;
    options_.tasks.train_end_task = true;
    options_.run = "run";
    options_.search_checkpoint = controller_.search();
    controller_.store.list =
        [this]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
      std::vector<checkpoint::Version> versions;
      for (const auto& [step, saved] : on_disk_) {
        versions.push_back(
            {step, absl::StrCat("version-", step), {saved.run, saved.lineage}});
      }
      return versions;
    };
    controller_.store.load_ledger =
        [this](const std::string& path) -> absl::StatusOr<v1::Ledger> {
      for (const auto& [step, saved] : on_disk_) {
        if (path == absl::StrCat("version-", step)) return saved.ledger;
      }
      return absl::NotFoundError(path);
    };
  }

  void Start() {
    auto controller = JobController::Create(options_, output_, output_, now_);
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
  }

  void Say(ConnectionId connection, const v1::WorkerMessage& message) {
    now_ += absl::Milliseconds(1);
    controller_->OnMessage(now_, connection, message);
  }
  // Hello and Ready, and the world that follows; what it starts from.
  struct Attached {
    int64_t worker_id = -1;
    std::string restore_from;
  };
  Attached Attach(ConnectionId connection, int64_t worker_id,
                  int64_t step = 0) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    Say(connection, hello);
    const auto welcomes = output_.Take(connection, v1::MasterMessage::kWelcome);
    if (welcomes.empty()) return {};
    v1::WorkerMessage ready;
    ready.mutable_ready()->set_step(step);
    Attached attached{welcomes[0].welcome().worker_id(),
                      welcomes[0].welcome().restore_from()};
    id_of_[connection] = attached.worker_id;
    Say(connection, ready);
    Form();
    if (prepared_.count(connection) != 0) {
      attached.restore_from = prepared_[connection].restore_from();
    }
    return attached;
  }
  // The workers do what the master says until it has nothing more to say.
  // The model of a world is at `step_`, or at the step it starts cold from.
  void Form() {
    for (bool more = true; more;) {
      more = false;
      for (const auto& [connection, id] : id_of_) {
        for (auto& message :
             output_.Take(connection, v1::MasterMessage::kPrepare)) {
          prepared_[connection] = message.prepare();
          v1::WorkerMessage offer;
          offer.mutable_offer()->set_generation(message.prepare().generation());
          Say(connection, offer);
          more = true;
        }
        for (auto& message :
             output_.Take(connection, v1::MasterMessage::kOffers)) {
          v1::WorkerMessage connected;
          connected.mutable_connected()->set_generation(
              message.offers().generation());
          Say(connection, connected);
          if (prepared_[connection].urgent()) BeLevel(connection);
          more = true;
        }
        if (!output_.Take(connection, v1::MasterMessage::kSwitch).empty()) {
          BeLevel(connection);
          more = true;
        }
      }
    }
  }
  // Rank 0 speaks for all.
  void BeLevel(ConnectionId connection) {
    const v1::Prepare& prepare = prepared_[connection];
    if (prepare.members(0).worker_id() != id_of_[connection]) return;
    if (prepare.cold()) {
      step_ = prepare.cold_step();
      if (prepare.kept().empty()) lineage_ = prepare.generation();
      totals_.clear();
    }
    v1::WorkerMessage message;
    v1::Level& level = *message.mutable_level();
    level.set_generation(prepare.generation());
    level.set_step(step_);
    level.set_lineage(lineage_);
    AddTotals(level.mutable_totals());
    Say(connection, message);
  }
  template <typename Totals>
  void AddTotals(Totals* totals) {
    for (const auto& [id, records] : totals_) {
      v1::RecordTotal& total = *totals->Add();
      total.set_worker_id(id);
      total.set_records(records);
    }
  }
  std::vector<v1::Task> Tasks(ConnectionId connection) {
    std::vector<v1::Task> tasks;
    for (const auto& message :
         output_.Take(connection, v1::MasterMessage::kTask)) {
      tasks.push_back(message.task());
    }
    return tasks;
  }
  void Commit(ConnectionId connection, const v1::Task& task, int64_t end) {
    const int64_t begin =
        done_until_.try_emplace(task.task_id(), task.range().begin())
            .first->second;
    done_until_[task.task_id()] = end;
    totals_[id_of_[connection]] += end - begin;
    v1::WorkerMessage message;
    v1::Progress& progress = *message.mutable_progress();
    progress.set_generation(prepared_[connection].generation());
    progress.set_step(++step_);
    AddTotals(progress.mutable_totals());
    Say(connection, message);
  }
  void Done(ConnectionId connection, const v1::Task& task,
            double metric_sum = 0) {
    v1::WorkerMessage message;
    message.mutable_task_done()->set_task_id(task.task_id());
    message.mutable_task_done()->set_records(task.range().end() -
                                             task.range().begin());
    if (task.type() == v1::EVALUATION) {
      v1::MetricSums& sums = *message.mutable_task_done()->add_metrics();
      sums.set_name("accuracy");
      sums.set_kind("mean");
      sums.add_sums(metric_sum);
      sums.add_sums(
          static_cast<double>(task.range().end() - task.range().begin()));
    }
    Say(connection, message);
  }
  // Trains until nothing more is granted; the tasks that are no training.
  std::vector<v1::Task> TrainAll(ConnectionId connection) {
    std::vector<v1::Task> others = TrainData(connection);
    SayIdle(connection);
    for (const v1::Task& task : TrainData(connection)) others.push_back(task);
    return others;
  }
  // Until there is no more of it; what else was handed out.
  std::vector<v1::Task> TrainData(ConnectionId connection) {
    std::vector<v1::Task> others;
    for (auto tasks = Tasks(connection); !tasks.empty();
         tasks = Tasks(connection)) {
      for (const v1::Task& task : tasks) {
        if (task.type() == v1::TRAINING) {
          Commit(connection, task, task.range().end());
        } else {
          others.push_back(task);
        }
      }
    }
    return others;
  }
  void SayIdle(ConnectionId connection) {
    v1::WorkerMessage message;
    message.mutable_idle()->set_generation(controller_->generation());
    Say(connection, message);
  }
  // A copy of the model that is being saved.
  struct Saved {
    int64_t step = 0;
    int64_t lineage = 0;
    v1::Ledger ledger;
    std::string run = "run";
  };
  Saved BeginSave(ConnectionId connection) {
    v1::WorkerMessage begin;
    begin.mutable_checkpoint_begin()->set_step(step_);
    begin.mutable_checkpoint_begin()->set_lineage(lineage_);
    Say(connection, begin);
    const auto replies = output_.Take(connection, v1::MasterMessage::kLedger);
    EXPECT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies.at(0).ledger().ledger().step(), step_);
    return {step_, lineage_, replies.at(0).ledger().ledger(),
            replies.at(0).ledger().run()};
  }
  void Publish(const Saved& saved) { on_disk_[saved.step] = saved; }
  void ReportSave(ConnectionId connection, const Saved& saved,
                  const std::string& error = "") {
    v1::WorkerMessage done;
    done.mutable_checkpoint_done()->set_step(saved.step);
    done.mutable_checkpoint_done()->set_lineage(saved.lineage);
    done.mutable_checkpoint_done()->set_error(error);
    Say(connection, done);
  }
  // A checkpoint of the present step, saved.
  void Checkpoint(ConnectionId connection) {
    const Saved saved = BeginSave(connection);
    Publish(saved);
    ReportSave(connection, saved);
  }
  void Break(ConnectionId connection) {
    controller_->OnClosed(now_, connection, absl::UnavailableError("lost"));
  }

  JobController::Options options_;
  Recorder output_;
  ControllerHandle controller_{now_};
  std::map<int64_t, Saved> on_disk_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  int64_t step_ = 0;
  int64_t lineage_ = 0;
  std::map<ConnectionId, int64_t> id_of_;
  std::map<ConnectionId, v1::Prepare> prepared_;
  std::map<int64_t, int64_t> totals_;
  std::map<int64_t, int64_t> done_until_;
};

TEST_F(JobControllerTest, TrainsAllThenExportsThenStops) {
  Start();
  EXPECT_EQ(Attach(1, 0).restore_from, "");
  // Whoever is about to do a round with others must not hear it before them.
  EXPECT_TRUE(TrainData(1).empty());
  EXPECT_TRUE(output_.Take(1, v1::MasterMessage::kTrainingDone).empty());
  const auto last = TrainAll(1);
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kTrainingDone).size(), 1u);
  SayIdle(1);
  EXPECT_TRUE(output_.Take(1, v1::MasterMessage::kTrainingDone).empty());
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].type(), v1::TRAIN_END_CALLBACK);
  EXPECT_FALSE(controller_->ending());
  Done(1, last[0]);
  EXPECT_TRUE(controller_->succeeding());
  const auto stops = output_.Take(1, v1::MasterMessage::kStop);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].stop().exit_code(), 0);
  EXPECT_FALSE(controller_->result().has_value()) << "a worker is still there";
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->exit_code, 0);
  int64_t records = 0;
  for (const auto& [step, n] : output_.committed) records += n;
  EXPECT_EQ(records, 100);
  EXPECT_TRUE(output_.lost.empty());
}

TEST_F(JobControllerTest, GrantsOneTaskInUseAndOneAhead) {
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end() - 10);
  EXPECT_TRUE(Tasks(1).empty());
  Commit(1, tasks[0], tasks[0].range().end());
  EXPECT_EQ(Tasks(1).size(), 1u);
}

TEST_F(JobControllerTest, QuickTasksAreHandedOutFurtherAhead) {
  options_.tasks.training_shards = {MakeShard("train", 2000)};
  Start();
  Attach(1, 0);
  std::vector<v1::Task> held = Tasks(1);
  ASSERT_EQ(held.size(), 2u);
  const auto next = [&] {
    Commit(1, held.front(), held.front().range().end());
    held.erase(held.begin());
    const std::vector<v1::Task> more = Tasks(1);
    held.insert(held.end(), more.begin(), more.end());
    return more.size();
  };
  // A task in a millisecond.
  next();
  EXPECT_EQ(held.size(), 16u);
  // Ten seconds for each: nothing more until there is one in use and one ahead.
  for (int i = 0; i < 14; ++i) {
    now_ += absl::Seconds(10);
    EXPECT_EQ(next(), 0u);
  }
  now_ += absl::Seconds(10);
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(held.size(), 2u);
}

TEST_F(JobControllerTest, QuickTasksAreNotHoardedAtTheEnd) {
  options_.tasks.training_shards = {MakeShard("train", 2000)};
  Start();
  Attach(1, 0);
  std::vector<v1::Task> held = Tasks(1);
  size_t left = 100 - held.size();
  size_t most = 0;
  while (left > 0) {
    Commit(1, held.front(), held.front().range().end());
    held.erase(held.begin());
    const std::vector<v1::Task> more = Tasks(1);
    held.insert(held.end(), more.begin(), more.end());
    if (!more.empty()) {
      EXPECT_LE(held.size(), std::max<size_t>(2, left / 2));
    }
    left -= more.size();
    most = std::max(most, held.size());
  }
  EXPECT_EQ(most, 16u);
  EXPECT_EQ(held.size(), 2u);
}

TEST_F(JobControllerTest, GrantsEnoughForTheGlobalBatch) {
  options_.job.set_global_batch_size(60);
  Start();
  Attach(1, 0);
  // Five of 20 records are all there are.
  EXPECT_EQ(Tasks(1).size(), 5u);
}

TEST_F(JobControllerTest, WhoLeavesHearsThatThereIsNoMore) {
  options_.job.set_global_batch_size(20);
  Start();
  Attach(1, 0);
  Attach(2, 1);
  Tasks(2);
  output_.Take(2, v1::MasterMessage::kNoMoreTasks);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(2, leaving);
  v1::WorkerMessage starving;
  starving.mutable_starving();
  Say(2, starving);
  EXPECT_TRUE(Tasks(2).empty());
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kNoMoreTasks).size(), 1u);
}

TEST_F(JobControllerTest, GrantsInTurn) {
  options_.tasks.num_minibatches_per_task = 1;
  options_.job.set_global_batch_size(100);
  options_.membership.min_workers = 2;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  EXPECT_EQ(Tasks(1).size(), 5u);
  EXPECT_EQ(Tasks(2).size(), 5u);
}

TEST_F(JobControllerTest, LostJoinerIsReportedAtOnce) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_id(1);
  Say(2, message);
  message.mutable_ready();
  Say(2, message);
  Break(2);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: signal 9"));
}

TEST_F(JobControllerTest, SecondWorkerOfALocalJobStandsBy) {
  options_.membership.max_workers = 1;
  Start();
  Attach(1, 0);
  Attach(2, 1);
  EXPECT_TRUE(Tasks(2).empty());
  ASSERT_EQ(output_.worlds.size(), 1u);
  // It takes over from the first, and from its checkpoint.
  Commit(1, Tasks(1)[0], 20);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  Form();
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(1));
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, LostWorkerCutsBackToTheStartWithoutACheckpoint) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("0: signal 9"));
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  step_ = 0;
  EXPECT_EQ(Attach(2, 1).restore_from, "");
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, LostWorkerCutsBackToTheNewestCheckpointOnDisk) {
  Start();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  // A second one was asked for, but its worker died in the save.
  BeginSave(1);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {true, "exit code 1"});
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  step_ = 1;
  EXPECT_EQ(Attach(2, 1, 1).restore_from, "version-1");
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

// The save was complete, only the word of it was lost: nothing is retrained.
TEST_F(JobControllerTest, UsesACheckpointWhoseReportWasLost) {
  Start();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Publish(BeginSave(1));
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  EXPECT_TRUE(output_.cut_backs.empty());
  EXPECT_EQ(Attach(2, 1, 1).restore_from, "version-1");
}

TEST_F(JobControllerTest, UnexplainedLossIsKilledAfterTheGrace) {
  Start();
  Attach(1, 0);
  Break(1);
  EXPECT_TRUE(output_.lost.empty()) << "the pod may still say why";
  EXPECT_EQ(controller_->NextTimer(), now_ + options_.end_grace);
  now_ += options_.end_grace;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
  EXPECT_EQ(output_.lost.size(), 1u);
}

TEST_F(JobControllerTest, SameWorkerComingBackFencesItsOldStream) {
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Attach(2, 0);
  EXPECT_EQ(output_.closed[1].code(), absl::StatusCode::kFailedPrecondition);
  // What the old stream still says changes nothing.
  Commit(1, tasks[0], 10);
  EXPECT_TRUE(output_.committed.empty());
  EXPECT_EQ(id_of_[2], 1) << "a new process is a new worker";
  EXPECT_EQ(Tasks(2).size(), 2u);
}

TEST_F(JobControllerTest, SurvivorsKeepTheModelAndTheDeadMembersRestIsRedone) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  ASSERT_EQ(output_.worlds.back().members.size(), 2u);
  const auto first = Tasks(1);
  const auto second = Tasks(2);
  ASSERT_EQ(second.size(), 2u);
  Commit(1, first[0], first[0].range().end());
  // Worker 1 trained ten records in a step that only the survivor knows of.
  totals_[1] = 10;
  ++step_;
  Break(2);
  EXPECT_TRUE(output_.lost.empty()) << "its pod has not said why";
  Form();
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(0));
  EXPECT_EQ(controller_->progress().committed_records, 30);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: signal 9"));
  EXPECT_TRUE(output_.cut_backs.empty());
  // The rest of its tasks, from that very record.
  done_until_.clear();
  for (const v1::Task& task : first) {
    done_until_[task.task_id()] = task.range().begin();
  }
  done_until_[first[0].task_id()] = first[0].range().end();
  Commit(1, first[1], first[1].range().end());
  TrainAll(1);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(JobControllerTest, StaleReportsOfAnEvictedMemberAreRefused) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  const auto tasks = Tasks(1);
  const int64_t generation = prepared_[1].generation();
  Attach(3, 2);
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_generation(generation);
  progress.set_step(5);
  progress.add_totals()->set_records(10);
  Say(1, message);
  EXPECT_TRUE(output_.committed.empty());
}

TEST_F(JobControllerTest, SaysWhatGoesOnBeforeDataIsWorkedOn) {
  options_.membership.min_workers = 2;
  Start();
  EXPECT_EQ(controller_->Activity(), "starting workers");
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  EXPECT_EQ(controller_->Activity(),
            "compiling or loading the model in 1 worker");
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(1, ready);
  EXPECT_EQ(controller_->Activity(),
            "waiting for more workers, 1 of at least 2 are ready");
  hello.mutable_hello()->set_worker_id(1);
  Say(2, hello);
  Say(2, ready);
  EXPECT_EQ(controller_->Activity(), "connecting 2 workers");
  v1::WorkerMessage loading;
  loading.mutable_loading()->set_generation(1);
  Say(1, loading);
  EXPECT_EQ(controller_->Activity(), "loading the model's state");
  loading.mutable_loading()->set_bytes(1500000);
  loading.mutable_loading()->set_total_bytes(4000000);
  Say(1, loading);
  EXPECT_EQ(controller_->Activity(),
            "loading the model's state, 1.5 of 4.0 MB");
  loading.mutable_loading()->set_stage(v1::Loading::MOVING);
  Say(2, loading);
  EXPECT_EQ(controller_->Activity(),
            "passing on the model's state, 1.5 of 4.0 MB");
  id_of_ = {{1, 0}, {2, 1}};
  Form();
  EXPECT_EQ(controller_->Activity(), "");
}

// To look at a checkpoint of some GB takes longer than a member may take for
// its answer.
TEST_F(JobControllerTest, MembersAreNotLateBecauseTheSearchIsSlow) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  Checkpoint(1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {});
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(1);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(2, ready);
  now_ += absl::Minutes(1);
  controller_->OnTimer(now_);
  EXPECT_TRUE(output_.killed.empty());
  EXPECT_TRUE(output_.Take(2, v1::MasterMessage::kPrepare).empty());
  controller_.Answer();
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kPrepare).size(), 1u);
  controller_->OnTimer(now_);
  EXPECT_TRUE(output_.killed.empty());
  // From now on it is.
  now_ += options_.membership.prepare_timeout;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
}

// Its step is over and its task goes on when the joiner has the state.
TEST_F(JobControllerTest, WhoPassesItsStateOnIsNotSilentOnItsTask) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_id(1);
  Say(2, message);
  message.mutable_ready();
  Say(2, message);
  for (const ConnectionId connection : {1, 2}) {
    message.mutable_offer()->set_generation(2);
    Say(connection, message);
  }
  for (const ConnectionId connection : {1, 2}) {
    message.mutable_connected()->set_generation(2);
    Say(connection, message);
  }
  message.mutable_loading()->set_generation(2);
  message.mutable_loading()->set_stage(v1::Loading::LOADED);
  Say(1, message);
  Say(2, message);
  message.mutable_loading()->set_stage(v1::Loading::MOVING);
  for (int i = 0; i < 30; ++i) {
    Say(2, message);
    now_ += absl::Minutes(1);
    controller_->OnTimer(now_);
    ASSERT_TRUE(output_.killed.empty()) << i;
  }
}

TEST_F(JobControllerTest, AMemberThatLoadsIsNotLate) {
  Start();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready();
  Say(1, ready);
  v1::WorkerMessage offer;
  offer.mutable_offer()->set_generation(1);
  Say(1, offer);
  v1::WorkerMessage connected;
  connected.mutable_connected()->set_generation(1);
  Say(1, connected);
  v1::WorkerMessage loading;
  loading.mutable_loading()->set_generation(1);
  for (int i = 0; i < 30; ++i) {
    loading.mutable_loading()->set_bytes(i);
    Say(1, loading);
    now_ += absl::Minutes(1);
    controller_->OnTimer(now_);
    ASSERT_TRUE(output_.killed.empty());
  }
  now_ += options_.membership.load_timeout;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
}

TEST_F(JobControllerTest, IdleMembersAreWokenWhenThereIsData) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage idle;
  idle.mutable_idle()->set_generation(prepared_[1].generation());
  Say(1, idle);
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kWake).size(), 1u)
      << "its tasks are on their way";
}

TEST_F(JobControllerTest, WrongTotalsFailTheJob) {
  Start();
  Attach(1, 0);
  totals_[0] = 1000;
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().begin());
  EXPECT_TRUE(controller_->ending());
}

TEST_F(JobControllerTest, AMemberThatHangsIsNamedAndKilled) {
  Start();
  Attach(1, 0);
  Attach(2, 1);
  v1::WorkerMessage stuck;
  stuck.mutable_stuck()->set_where("feed (step 3)");
  stuck.mutable_stuck()->set_seconds(31);
  Say(2, stuck);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
  EXPECT_EQ(output_.closed[2].code(), absl::StatusCode::kFailedPrecondition);
  Form();
  ASSERT_EQ(output_.lost.size(), 1u);
  EXPECT_THAT(output_.lost[0], HasSubstr("stuck in feed (step 3)"));
  EXPECT_THAT(output_.worlds.back().members, testing::ElementsAre(0));
}

TEST_F(JobControllerTest, EvaluatesAtTheStepThatAsksAndLetsTheWorkerGoOn) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.evaluation.evaluation_steps = 1;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  EXPECT_EQ(Tasks(1).size(), 1u);
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  for (const v1::Task& task : tasks) {
    EXPECT_EQ(task.type(), v1::EVALUATION);
    EXPECT_EQ(task.model_version(), 1);
    Done(1, task, 3);
  }
  for (const v1::Task& task : Tasks(1)) {
    if (task.type() == v1::EVALUATION) Done(1, task, 3);
  }
  const auto done = output_.Take(1, v1::MasterMessage::kEvaluationDone);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].evaluation_done().step(), 1);
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].records, 30);
  EXPECT_EQ(output_.done_records, 30);
}

TEST_F(JobControllerTest, EvaluationOnlyJobNeedsNoTraining) {
  options_.job.set_job_type(v1::EVALUATION_ONLY);
  options_.tasks.training_shards.clear();
  options_.tasks.train_end_task = false;
  options_.tasks.final_evaluation = true;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  options_.restore_from = "version-5";
  options_.restore_step = 5;
  Start();
  // Several workers share it.
  EXPECT_EQ(Attach(1, 0, 5).restore_from, "version-5");
  Attach(2, 1, 5);
  for (int round = 0; round < 3; ++round) {
    for (const ConnectionId connection : {1, 2}) {
      for (const v1::Task& task : Tasks(connection)) Done(connection, task, 1);
    }
  }
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].version, 5);
  EXPECT_TRUE(controller_->succeeding());
}

TEST_F(JobControllerTest, FatalErrorFailsTheJobWithTheWorkersWords) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage fatal;
  fatal.mutable_fatal()->set_message("feed threw on record 7");
  Say(1, fatal);
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kStop)[0].stop().exit_code(),
            kExitJobFailed);
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_THAT(controller_->result()->message,
              HasSubstr("feed threw on record 7"));
}

TEST_F(JobControllerTest, CrashingTaskIsSetAsideAndTheExitCodeSaysSo) {
  options_.tasks.task_max_failures = 2;
  Start();
  ConnectionId connection = 0;
  // The first crash may be the fault of either task; then they come one by one.
  for (const size_t tasks : {2u, 1u, 1u}) {
    EXPECT_EQ(output_.quarantined, 0);
    ++connection;
    Attach(connection, connection);
    ASSERT_EQ(Tasks(connection).size(), tasks);
    Break(connection);
    controller_->OnWorkerEnded(now_, connection, {true, "signal 11"});
    EXPECT_TRUE(controller_->BlamedOnOther(connection));
  }
  EXPECT_EQ(output_.quarantined, 1);
  ++connection;
  Attach(connection, connection);
  while (controller_->progress().committed_records < 80) {
    for (const v1::Task& task : Tasks(connection)) {
      Commit(connection, task, task.range().end());
    }
  }
  SayIdle(connection);
  Done(connection, Tasks(connection).at(0));
  Break(connection);
  EXPECT_EQ(controller_->result()->exit_code, kExitRecordsQuarantined);
}

TEST_F(JobControllerTest, CrashingEverywhereIsTheWorkersFaultInTheEnd) {
  options_.tasks.task_max_failures = 2;
  Start();
  int blamed = 0;
  for (int crash = 0; crash < 5; ++crash) {
    Attach(crash + 1, crash);
    Break(crash + 1);
    controller_->OnWorkerEnded(now_, crash, {true, "signal 11"});
    blamed += controller_->BlamedOnOther(crash) ? 1 : 0;
  }
  EXPECT_EQ(blamed, 3);
}

TEST_F(JobControllerTest, CrashesWithoutACulpritAreTheWorkersFaultInTheEnd) {
  options_.tasks.training_shards = {MakeShard("train", 1000)};
  options_.tasks.task_max_failures = 2;
  Start();
  // Each worker trains a little more than the one before it.
  int blamed = 0;
  for (int crash = 0; crash < 10; ++crash) {
    Attach(crash + 1, crash);
    step_ = 0;
    for (int i = 0; i <= crash; ++i) {
      const auto tasks = Tasks(crash + 1);
      ASSERT_FALSE(tasks.empty());
      Commit(crash + 1, tasks[0], tasks[0].range().end());
    }
    Break(crash + 1);
    controller_->OnWorkerEnded(now_, crash, {true, "signal 11"});
    blamed += controller_->BlamedOnOther(crash) ? 1 : 0;
  }
  EXPECT_EQ(blamed, 6);
  EXPECT_EQ(output_.quarantined, 0);
}

TEST_F(JobControllerTest, TheJobWaitsForItsLastCheckpoint) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  EXPECT_TRUE(TrainAll(1).empty()) << "train end before the model is saved";
  ReportSave(1, BeginSave(1));
  const auto last = Tasks(1);
  ASSERT_EQ(last.size(), 1u);
  Done(1, last[0]);
  EXPECT_TRUE(controller_->succeeding());
}

TEST_F(JobControllerTest, AnEvaluationOfALostModelDoesNotBegin) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.tasks.validation_shards = {MakeShard("test", 10)};
  options_.evaluation.evaluation_steps = 1;
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 10);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving();
  Say(1, leaving);
  ASSERT_THAT(output_.cut_backs, testing::ElementsAre(0));
  // Said before it was let go; the job has begun again from step 0.
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  EXPECT_FALSE(controller_->evaluation_progress().has_value());
}

TEST_F(JobControllerTest, LeavingIsNoFailure) {
  Start();
  Attach(1, 0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(1, leaving);
  ASSERT_EQ(output_.lost.size(), 1u);
  EXPECT_THAT(output_.lost[0], HasSubstr("0: left"));
  EXPECT_EQ(output_.Take(1, v1::MasterMessage::kStop)[0].stop().exit_code(), 0);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "exit code 0"});
  EXPECT_EQ(output_.lost.size(), 1u);
  EXPECT_FALSE(controller_->BlamedOnOther(0));
}

// ---- nobody stays ----

class LastWorldTest : public JobControllerTest {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.job.set_checkpoint_dir("checkpoints");
    options_.membership.save_last = true;
    Start();
    Attach(1, 0);
    Attach(2, 1);
    const auto tasks = Tasks(1);
    ASSERT_EQ(tasks.size(), 2u);
    Commit(1, tasks[0], tasks[0].range().end());
    // Not reported; the last world tells it.
    ++step_;
    totals_[0] += 10;
  }
  void Leave(ConnectionId connection) {
    v1::WorkerMessage leaving;
    leaving.mutable_leaving()->set_reason("SIGTERM");
    Say(connection, leaving);
  }
  void SayWorldSaved(ConnectionId connection) {
    v1::WorkerMessage saved;
    saved.mutable_saved()->set_generation(prepared_[connection].generation());
    Say(connection, saved);
  }
  size_t Stops(ConnectionId connection) {
    return output_.Take(connection, v1::MasterMessage::kStop).size();
  }
};

TEST_F(LastWorldTest, WhoIsScaledAwayIsSaidToBe) {
  controller_->NoteRemoved(1, "scaled away");
  controller_->NoteRemoved(77, "unknown");
  Leave(2);
  Form();
  EXPECT_THAT(output_.lost, testing::ElementsAre("1: scaled away"));
}

TEST_F(LastWorldTest, AllLeaveWhenAllThatCountDo) {
  EXPECT_FALSE(controller_->AllLeaving());
  Leave(1);
  EXPECT_FALSE(controller_->AllLeaving());
  // Whoever is not ready has nothing to save.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(2);
  Say(3, hello);
  Break(2);
  EXPECT_TRUE(controller_->AllLeaving());
  // It was asked by the master.
  controller_->NoteRemoved(0, "scaled away");
  EXPECT_FALSE(controller_->AllLeaving());
}

TEST_F(LastWorldTest, SuspendedThoughAStreamStaysOpen) {
  controller_->StopJob(now_, "Slurm ends the allocation", /*suspend=*/true);
  Form();
  Checkpoint(1);
  SayWorldSaved(1);
  Break(1);
  ASSERT_TRUE(controller_->ending());
  EXPECT_FALSE(controller_->result().has_value());
  const JobResult early = controller_->ResultWithout("one did not end");
  EXPECT_EQ(early.exit_code, kExitSuspended);
  EXPECT_THAT(early.message, HasSubstr("a requeued job continues"));
  Break(2);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->ResultWithout("").exit_code, kExitSuspended);
}

TEST_F(LastWorldTest, WhenAllLeaveTheJobGoesOnWhereTheyStopped) {
  Leave(1);
  Leave(2);
  Form();
  EXPECT_TRUE(prepared_[1].last());
  EXPECT_TRUE(prepared_[1].urgent());
  EXPECT_EQ(prepared_[1].members_size(), 2);
  EXPECT_EQ(controller_->progress().committed_records, 30);
  Checkpoint(1);
  EXPECT_EQ(Stops(1) + Stops(2), 0u);
  SayWorldSaved(1);
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
  EXPECT_THAT(output_.lost,
              testing::ElementsAre("0: left (SIGTERM)", "1: left (SIGTERM)"));
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_FALSE(controller_->ending());
  Break(1);
  Break(2);
  id_of_.clear();
  EXPECT_EQ(Attach(3, 2).restore_from, "version-2");
  EXPECT_TRUE(prepared_[3].cold());
  EXPECT_EQ(prepared_[3].cold_step(), 2);
  EXPECT_FALSE(prepared_[3].last());
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_F(LastWorldTest, WhatIsNotSavedIsTrainedAgain) {
  Leave(1);
  Leave(2);
  Form();
  BeginSave(1);
  for (const ConnectionId connection : {1, 2}) {
    Break(connection);
    controller_->OnWorkerEnded(now_, connection - 1, {false, "signal 9"});
  }
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  id_of_.clear();
  EXPECT_EQ(Attach(3, 2).restore_from, "");
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

// Of a world that was given up before it could report.
TEST_F(LastWorldTest, ACopyOfAnUnknownStepGetsNoLedger) {
  v1::WorkerMessage begin;
  begin.mutable_checkpoint_begin()->set_step(step_);
  Say(1, begin);
  auto replies = output_.Take(1, v1::MasterMessage::kLedger);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].ledger().step(), step_);
  EXPECT_FALSE(replies[0].ledger().has_ledger());
}

TEST_F(LastWorldTest, AJobThatIsStoppedSavesFirst) {
  controller_->StopJob(now_, "enough");
  EXPECT_FALSE(controller_->ending());
  EXPECT_EQ(controller_->Activity(), "stopping and saving a checkpoint");
  EXPECT_EQ(Stops(1), 0u);
  // Too late to join.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(2);
  Say(3, hello);
  EXPECT_EQ(Stops(3), 1u);
  Form();
  EXPECT_TRUE(prepared_[1].last());
  Checkpoint(1);
  EXPECT_FALSE(controller_->ending());
  SayWorldSaved(1);
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(controller_->Activity(), "stopping the workers");
  EXPECT_FALSE(controller_->succeeding());
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  Break(1);
  Break(2);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; saved checkpoints/version-2; continue with "
            "--checkpoint_dir_for_init=checkpoints");
}

// When it happens: the last checkpoint and evaluation come after it.
TEST_F(JobControllerTest, SaysThatMaxStepIsReached) {
  options_.tasks.max_step = 2;
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end());
  EXPECT_THAT(output_.messages, testing::IsEmpty());
  Commit(1, tasks[1], tasks[1].range().end());
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.messages,
              testing::ElementsAre("training stops early: max_step 2 reached"));
}

TEST_F(JobControllerTest, AStopTellsWhichStepIsTheNewestOnTheDisk) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  controller_->StopJob(now_, "enough");
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; step 2 was not saved, the newest checkpoint is "
            "checkpoints/version-1; continue with "
            "--checkpoint_dir_for_init=checkpoints");
}

TEST_F(JobControllerTest, ACheckpointBeyondTheEpochsLeavesTheRest) {
  options_.tasks.num_epochs = 3;
  auto before = TaskManager::Create(options_.tasks);
  ASSERT_TRUE(before.ok());
  // Five tasks are an epoch.
  for (int i = 0; i < 6; ++i) {
    const GrantResult grant = before->Grant(now_, 0);
    ASSERT_TRUE(grant.task.has_value());
    if (i == 5) break;
    ASSERT_TRUE(
        before
            ->Commit(now_, 0, grant.task->task_id(), grant.task->range().end())
            .ok());
  }
  options_.restore_ledger = before->Snapshot();
  options_.restore_from = "version-5";
  options_.restore_step = 5;
  Start();
  EXPECT_THAT(output_.messages, testing::IsEmpty());
  options_.tasks.num_epochs = 1;
  Start();
  EXPECT_THAT(output_.messages,
              testing::ElementsAre(
                  "the checkpoint is in epoch 2; --num_epochs=1 leaves 20 "
                  "records to train; a higher --num_epochs continues"));
}

TEST_F(JobControllerTest, AStopTellsThatNothingWasSaved) {
  Start();
  Attach(1, 0);
  Commit(1, Tasks(1)[0], 20);
  controller_->StopJob(now_, "enough");
  Break(1);
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; nothing was saved: the job has no --checkpoint_dir");
}

TEST_F(JobControllerTest, AStopBeforeTheFirstStepSavesNothing) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  controller_->StopJob(now_, "enough");
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->message,
            "enough; nothing was saved: no step was trained");
}

TEST_F(LastWorldTest, TheSecondStopDoesNotWait) {
  controller_->StopJob(now_, "enough");
  controller_->StopJob(now_, "at once");
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(Stops(1), 1u);
  EXPECT_EQ(Stops(2), 1u);
}

TEST_F(LastWorldTest, AStopDoesNotWaitForWorkersThatHang) {
  controller_->StopJob(now_, "enough");
  // Both answer to the end of their patience, and again and again.
  for (int i = 0; i < 10 && !controller_->ending(); ++i) {
    now_ = std::max(now_, controller_->NextTimer());
    controller_->OnTimer(now_);
  }
  EXPECT_TRUE(controller_->ending());
}

TEST_F(LastWorldTest, AStopEndsWithTheLastWorker) {
  controller_->StopJob(now_, "enough");
  Form();
  for (const ConnectionId connection : {1, 2}) {
    EXPECT_FALSE(controller_->ending());
    Break(connection);
    controller_->OnWorkerEnded(now_, connection - 1, {false, "signal 9"});
  }
  EXPECT_TRUE(controller_->ending());
  EXPECT_EQ(controller_->result()->message, "enough; nothing was saved");
}

// The evaluation goes on with those who come, who must not train meanwhile.
TEST_F(JobControllerTest, AColdWorldWaitsForAnEvaluationThatHasBegun) {
  options_.job.set_job_type(v1::TRAINING_WITH_EVALUATION);
  options_.evaluation.evaluation_steps = 1;
  options_.tasks.validation_shards = {MakeShard("valid", 30)};
  Start();
  Attach(1, 0);
  EXPECT_FALSE(prepared_[1].evaluating());
  Commit(1, Tasks(1)[0], 20);
  Checkpoint(1);
  v1::WorkerMessage due;
  due.mutable_evaluation_due()->set_step(1);
  Say(1, due);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.clear();
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  EXPECT_TRUE(prepared_[2].evaluating());
  Say(2, due);
  for (int round = 0; round < 2; ++round) {
    for (const v1::Task& task : Tasks(2)) {
      if (task.type() == v1::EVALUATION) Done(2, task, 3);
    }
  }
  ASSERT_EQ(output_.evaluations.size(), 1u);
  EXPECT_EQ(output_.evaluations[0].records, 30);
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kEvaluationDone).size(), 1u);
}

TEST_F(JobControllerTest, ShardsOfTheModelsReaderReplaceUnreadableData) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Start();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_shards(true);
  *ready.mutable_ready()->add_training_shards() = MakeShard("table", 40);
  id_of_[1] = 0;
  Say(1, ready);
  Form();
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].range().shard(), "table");
}

TEST_F(JobControllerTest, UnreadableDataFailsWhenTheModelHasNoReader) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Start();
  Attach(1, 0);
  EXPECT_TRUE(controller_->ending());
  Break(1);
  EXPECT_THAT(controller_->result()->message, HasSubstr("no such folder"));
}

TEST_F(JobControllerTest, FailedLastCheckpointFailsTheJob) {
  Start();
  Attach(1, 0);
  const auto last = TrainAll(1);
  const Saved last_save = BeginSave(1);
  Done(1, last.at(0));
  ReportSave(1, last_save, "disk full");
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_THAT(controller_->result()->message, HasSubstr("disk full"));
}

// Two workers save the last step, and the one that fails is heard first.
TEST_F(JobControllerTest, AGoodLastCheckpointCountsAfterAFailedOne) {
  options_.job.set_checkpoint_dir("checkpoints");
  Start();
  Attach(1, 0);
  EXPECT_TRUE(TrainAll(1).empty());
  const Saved failed = BeginSave(1);
  const Saved good = BeginSave(1);
  ReportSave(1, failed, "disk full");
  Done(1, Tasks(1).at(0));
  ReportSave(1, good);
  Break(1);
  EXPECT_EQ(controller_->result()->exit_code, 0)
      << controller_->result()->message;
}

// ---- which checkpoints there are ----

// Rank 0 left while its save was being flushed; its report comes last.
TEST_F(JobControllerTest, ALateReportOfAnOlderSaveChangesNothing) {
  for (const std::string error : {"", "disk full"}) {
    SCOPED_TRACE(error);
    SetUp();
    output_ = Recorder();
    step_ = 0;
    totals_.clear();
    done_until_.clear();
    options_.job.set_checkpoint_dir("checkpoints");
    Start();
    Attach(1, 0);
    const auto tasks = Tasks(1);
    Commit(1, tasks[0], tasks[0].range().end());
    const Saved older = BeginSave(1);
    Commit(1, tasks[1], tasks[1].range().end());
    EXPECT_TRUE(TrainAll(1).empty());
    ReportSave(1, BeginSave(1));
    auto last = Tasks(1);
    ReportSave(1, older, error);
    ASSERT_EQ(last.size(), 1u) << "the train-end task is never granted";
    Done(1, last[0]);
    EXPECT_TRUE(controller_->succeeding());
    Break(1);
    ASSERT_TRUE(controller_->result().has_value());
    EXPECT_EQ(controller_->result()->exit_code, 0)
        << controller_->result()->message;
  }
}

// And before the train-end task is granted.
TEST_F(JobControllerTest, ALateReportDoesNotTakeTheLastOneAway) {
  options_.job.set_checkpoint_dir("checkpoints");
  options_.tasks.validation_shards = {MakeShard("valid", 10)};
  options_.tasks.final_evaluation = true;
  Start();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  const Saved older = BeginSave(1);
  Commit(1, tasks[1], tasks[1].range().end());
  auto others = TrainAll(1);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].type(), v1::EVALUATION);
  ReportSave(1, BeginSave(1));
  ReportSave(1, older);
  Done(1, others[0]);
  others = Tasks(1);
  ASSERT_EQ(others.size(), 1u) << "the job hangs";
  EXPECT_EQ(others[0].type(), v1::TRAIN_END_CALLBACK);
}

class CutBackTest : public JobControllerTest {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.tasks.training_shards = {MakeShard("train", 1000)};
    Start();
    Attach(1, 0);
  }
  void TrainSteps(ConnectionId connection, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (held_.empty()) held_ = Tasks(connection);
      ASSERT_FALSE(held_.empty());
      Commit(connection, held_.front(), held_.front().range().end());
      held_.erase(held_.begin());
    }
  }
  // The only worker dies, another one comes.
  std::string LoseAndAttach(ConnectionId old_one, ConnectionId new_one) {
    Break(old_one);
    controller_->OnWorkerEnded(now_, id_of_[old_one], {false, "signal 9"});
    id_of_.erase(old_one);
    held_.clear();
    const int64_t id = controller_->next_worker_id();
    return Attach(new_one, id).restore_from;
  }
  // A task of 20 records in each step.
  void ExpectGoodLedger() {
    EXPECT_EQ(controller_->progress().committed_records, 20 * step_);
  }
  std::vector<v1::Task> held_;
};

TEST_F(CutBackTest, AVersionThatAppearsAfterTheCutBackIsNotUsed) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 3);
  const Saved late = BeginSave(1);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-2");
  // Its writer, on another machine, did not know.
  Publish(late);
  TrainSteps(2, 1);
  EXPECT_EQ(LoseAndAttach(2, 3), "version-2");
  TrainSteps(3, 1);
  EXPECT_EQ(step_, 3);
  ExpectGoodLedger();
  // At that step again: it is still another model.
  TrainSteps(3, 3);
  EXPECT_EQ(LoseAndAttach(3, 4), "version-2");
  ExpectGoodLedger();
}

TEST_F(CutBackTest, AVersionThatIsRefusedLeadsToTheOneBefore) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  // One has a ledger of other data, one a ledger that cannot be.
  on_disk_[2].ledger.mutable_shards(0)->set_name("other");
  on_disk_[3].ledger.set_committed_records(7);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  ExpectGoodLedger();
}

// The search may take minutes; the controller does everything else meanwhile.
TEST_F(CutBackTest, WorkersComeAndGoWhileACheckpointIsLookedFor) {
  TrainSteps(1, 2);
  Checkpoint(1);
  TrainSteps(1, 1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  held_.clear();
  ASSERT_EQ(controller_.num_queries(), 1u);
  // Two come, one of them goes again; nobody is told of a world.
  Attach(2, 1);
  Attach(3, 2);
  EXPECT_EQ(controller_->num_ready_workers(), 2);
  EXPECT_EQ(prepared_.count(2) + prepared_.count(3), 0u);
  Break(2);
  controller_->OnWorkerEnded(now_, 1, {false, "signal 9"});
  id_of_.erase(2);
  EXPECT_EQ(controller_.num_queries(), 1u) << "asked twice";
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  controller_.slow = false;
  controller_.Answer();
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(2));
  Form();
  EXPECT_EQ(prepared_[3].restore_from(), "version-2");
  TrainSteps(3, 1);
  EXPECT_EQ(step_, 3);
  ExpectGoodLedger();
}

TEST_F(CutBackTest, AJobCanBeStoppedWhileACheckpointIsLookedFor) {
  TrainSteps(1, 2);
  Checkpoint(1);
  controller_.slow = true;
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  controller_->StopJob(now_, "Ctrl-C");
  EXPECT_TRUE(controller_->ending());
  ASSERT_TRUE(controller_->result().has_value());
  // The answer comes too late to matter.
  controller_.Answer();
  EXPECT_TRUE(output_.cut_backs.empty());
}

TEST_F(CutBackTest, AnotherRunsVersionIsNotUsed) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  const Saved mine = BeginSave(1);
  Publish(mine);
  on_disk_[2].run = "another";
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
}

TEST_F(CutBackTest, AReportOfAnAbandonedLineageIsNoReport) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 2);
  const Saved abandoned = BeginSave(1);
  EXPECT_EQ(LoseAndAttach(1, 2), "version-1");
  ReportSave(2, abandoned);
  Attach(3, controller_->next_worker_id());
  EXPECT_EQ(prepared_[3].saved_step(), 1);
}

TEST_F(CutBackTest, ACopyOfAnAbandonedLineageGetsNoLedger) {
  TrainSteps(1, 1);
  const int64_t abandoned = lineage_;
  LoseAndAttach(1, 2);
  TrainSteps(2, 1);
  v1::WorkerMessage begin;
  begin.mutable_checkpoint_begin()->set_step(step_);
  begin.mutable_checkpoint_begin()->set_lineage(abandoned);
  Say(2, begin);
  const auto replies = output_.Take(2, v1::MasterMessage::kLedger);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies[0].ledger().has_ledger());
}

// Deleted between the cut back and the next worker.
TEST_F(CutBackTest, AVersionThatVanishesLeadsToTheOneBefore) {
  TrainSteps(1, 1);
  Checkpoint(1);
  TrainSteps(1, 1);
  Checkpoint(1);
  Break(1);
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9"});
  id_of_.erase(1);
  held_.clear();
  on_disk_.erase(2);
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  EXPECT_EQ(prepared_[2].cold_step(), 1);
  ExpectGoodLedger();
}

// ---- a master that is restarted ----

// With true, the journal is shortened first.
class SuccessionTest : public JobControllerTest,
                       public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    JobControllerTest::SetUp();
    options_.has_pods = false;
    options_.record = [this](const v1::JournalRecord& record) {
      journal_.push_back(record);
    };
  }
  // The first master, or one that takes over from the journal.
  void Begin() {
    options_.replay = journal_;
    Start();
    const absl::Status status = controller_->Begin(now_);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Restart() {
    if (GetParam()) journal_ = controller_->StateRecords();
    output_.sent.clear();
    id_of_.clear();
    Begin();
  }
  // The worker comes back with the model and all tasks up to `last_task_id`.
  void ComeBack(ConnectionId connection, int64_t worker_id,
                int64_t last_task_id) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    hello.mutable_hello()->set_resuming(true);
    Say(connection, hello);
    if (output_.Take(connection, v1::MasterMessage::kWelcome).empty()) return;
    id_of_[connection] = worker_id;
    v1::WorkerMessage ready;
    ready.mutable_ready()->set_step(step_);
    ready.mutable_ready()->set_has_state(true);
    ready.mutable_ready()->set_last_task_id(last_task_id);
    Say(connection, ready);
    Form();
  }

  std::vector<v1::JournalRecord> journal_;
};

TEST_P(SuccessionTest, TheWorkerGoesOnWithItsTasks) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  ASSERT_EQ(tasks.size(), 2);
  Commit(1, tasks[0], tasks[0].range().begin() + 10);
  Restart();
  EXPECT_EQ(controller_->progress().committed_records, 10);
  EXPECT_EQ(controller_->progress().step, step_);
  ComeBack(2, 0, tasks[1].task_id());
  ASSERT_FALSE(output_.worlds.empty());
  EXPECT_GT(output_.worlds.back().generation,
            output_.worlds.front().generation);
  EXPECT_FALSE(prepared_[2].cold());
  // It has them.
  EXPECT_TRUE(Tasks(2).empty());
  Commit(2, tasks[0], tasks[0].range().end());
  Commit(2, tasks[1], tasks[1].range().end());
  const auto others = TrainAll(2);
  ASSERT_EQ(others.size(), 1);
  Done(2, others[0]);
  EXPECT_TRUE(controller_->succeeding());
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

TEST_P(SuccessionTest, TasksThatDidNotArriveAreSentAgain) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Restart();
  ComeBack(2, 0, tasks[0].task_id());
  const auto again = Tasks(2);
  ASSERT_EQ(again.size(), 1);
  EXPECT_EQ(again[0].SerializeAsString(), tasks[1].SerializeAsString());
}

TEST_P(SuccessionTest, ReportsThatDidNotArriveAreSettledByTheWorld) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Restart();
  // It had trained on meanwhile.
  step_ = 2;
  totals_[0] = 20;
  ComeBack(2, 0, tasks[1].task_id());
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_EQ(controller_->progress().step, 2);
}

TEST_P(SuccessionTest, NoWorldBeforeAllMembersAreBack) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  const size_t worlds = output_.worlds.size();
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  EXPECT_EQ(output_.worlds.size(), worlds);
  ComeBack(4, 1, 100);
  ASSERT_EQ(output_.worlds.size(), worlds + 1);
  EXPECT_EQ(output_.worlds.back().members.size(), 2);
}

TEST_P(SuccessionTest, WhoDoesNotComeBackIsLostAndFenced) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  const auto own = Tasks(1);
  ASSERT_EQ(own.size(), 2);
  ASSERT_FALSE(Tasks(2).empty());
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  now_ += options_.resume_grace;
  EXPECT_LE(controller_->NextTimer(), now_);
  controller_->OnTimer(now_);
  Form();
  ASSERT_EQ(output_.worlds.back().members, std::vector<int64_t>{0});
  EXPECT_THAT(output_.lost,
              testing::ElementsAre(HasSubstr("1: did not reattach")));
  // Its data goes to the other, which still has its own.
  for (const v1::Task& task : own) Commit(3, task, task.range().end());
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  ComeBack(4, 1, 100);
  EXPECT_EQ(output_.closed[4].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(SuccessionTest, WhoIsKnownToBeDeadIsNotWaitedFor) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  EXPECT_THAT(controller_->awaited(), testing::ElementsAre(0, 1));
  ComeBack(3, 0, /*last_task_id=*/0);
  controller_->OnWorkerEnded(now_, 1, {false, "its pod is gone"});
  Form();
  EXPECT_EQ(output_.worlds.back().members, std::vector<int64_t>{0});
  EXPECT_THAT(output_.lost, testing::SizeIs(1));
}

TEST_P(SuccessionTest, WithoutTheModelItFallsBackToTheCheckpoint) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  EXPECT_EQ(controller_->progress().committed_records, 30);
  Restart();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
  EXPECT_EQ(Attach(2, -1).restore_from, "version-1");
}

// It said so before the others were back.
TEST_P(SuccessionTest, WhoLeavesIsNotForgotten) {
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  v1::WorkerMessage leaving;
  leaving.mutable_leaving()->set_reason("SIGTERM");
  Say(3, leaving);
  ComeBack(4, 1, 100);
  EXPECT_EQ(output_.worlds.back().members, std::vector<int64_t>{1});
  EXPECT_EQ(output_.Take(3, v1::MasterMessage::kStop).size(), 1);
}

TEST_P(SuccessionTest, IdsAndGenerationsAreNeverUsedAgain) {
  Begin();
  EXPECT_EQ(Attach(1, -1).worker_id, 0);
  const int64_t generation = output_.worlds.back().generation;
  Restart();
  EXPECT_EQ(controller_->next_worker_id(), 1);
  ComeBack(2, 0, 100);
  EXPECT_GT(output_.worlds.back().generation, generation);
  EXPECT_EQ(Attach(3, -1).worker_id, 1);
}

TEST_P(SuccessionTest, TheLastCommitsAreToldAgain) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  const auto told = output_.committed;
  ASSERT_EQ(told.size(), 1);
  Restart();
  // The audit was cut to before them (all records say 0 bytes here); not when
  // the journal was shortened, which is done when they are in the audit.
  EXPECT_EQ(output_.committed.size(), GetParam() ? 1 : 2);
  EXPECT_EQ(output_.committed.back(), told.back());
}

TEST_P(SuccessionTest, AnOutcomeStays) {
  Begin();
  Attach(1, 0);
  controller_->Fail(now_, "no luck");
  Restart();
  EXPECT_TRUE(controller_->ending());
  ASSERT_TRUE(controller_->result().has_value());
  EXPECT_EQ(controller_->result()->exit_code, kExitJobFailed);
  EXPECT_EQ(controller_->result()->message, "no luck");
}

TEST_P(SuccessionTest, AJournalOfAnotherJobIsRefused) {
  Begin();
  options_.job.set_job_name("another");
  options_.replay = journal_;
  EXPECT_EQ(
      JobController::Create(options_, output_, output_, now_).status().code(),
      absl::StatusCode::kDataLoss);
}

// The lineage, and what is saved, are known to the next master.
TEST_P(SuccessionTest, ASaveGoesOnOverARestart) {
  options_.job.set_checkpoint_dir("checkpoints");
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  const Saved under_way = on_disk_[1];
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  Restart();
  ComeBack(2, 0, tasks[1].task_id());
  EXPECT_EQ(prepared_[2].saved_step(), 1);
  ReportSave(2, under_way);
  Commit(2, tasks[1], tasks[1].range().end());
  EXPECT_TRUE(TrainAll(2).empty());
  ReportSave(2, BeginSave(2));
  EXPECT_EQ(Tasks(2).size(), 1u);
}

TEST_P(SuccessionTest, AVersionOfAnAbandonedLineageStaysUnused) {
  Begin();
  Attach(1, 0);
  auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  const Saved late = BeginSave(1);
  Break(1);
  id_of_.clear();
  EXPECT_EQ(Attach(2, 1).restore_from, "version-1");
  Publish(late);
  tasks = Tasks(2);
  Commit(2, tasks[0], tasks[0].range().end());
  Restart();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(Attach(3, -1).restore_from, "version-1");
  EXPECT_EQ(controller_->progress().committed_records, 20);
}

// Its disk was full: the workers went on unrecorded.
TEST_P(SuccessionTest, AnIncompleteJournalLeadsToTheCheckpoint) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().begin() + 10);
  if (GetParam()) journal_ = controller_->StateRecords();
  const std::vector<v1::JournalRecord> until_here = journal_;
  const int64_t generation = lineage_;
  Commit(1, tasks[1], tasks[1].range().end());
  Attach(2, 1);
  journal_ = until_here;
  options_.replay_incomplete = true;
  output_.sent.clear();
  id_of_.clear();
  Begin();
  ComeBack(3, 0, tasks[1].task_id());
  EXPECT_EQ(output_.closed[3].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_EQ(Attach(4, 2).restore_from, "version-1");
  EXPECT_GT(prepared_[4].generation(), generation + 100);
  const auto others = TrainAll(4);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  ASSERT_EQ(others.size(), 1u);
}

// The master was killed between the two records, the workers after it.
TEST_P(SuccessionTest, CommitsOfAStepThatIsNotRecordedAreVoid) {
  Begin();
  Attach(1, 0);
  const auto tasks = Tasks(1);
  Commit(1, tasks[0], tasks[0].range().end());
  Checkpoint(1);
  Commit(1, tasks[1], tasks[1].range().end());
  while (!journal_.back().task().has_step()) journal_.pop_back();
  journal_.pop_back();
  ASSERT_TRUE(journal_.back().task().has_committed());
  output_.sent.clear();
  id_of_.clear();
  Begin();
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(controller_->progress().committed_records, 20);
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(1));
}

// Both came to the worker before it could answer the first of two masters.
TEST_P(SuccessionTest, ASecondReadyBringsNoSecondTasks) {
  Begin();
  Attach(1, 0);
  ASSERT_EQ(Tasks(1).size(), 2u);
  Restart();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_state(true);
  Say(2, ready);
  Say(2, ready);
  EXPECT_EQ(output_.Take(2, v1::MasterMessage::kTask).size(), 2u);
}

// How a worker's process ended was not known yet when the master died.
TEST_P(SuccessionTest, TasksOfAWorkerThatWasLostBeforeGoBack) {
  options_.has_pods = true;
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  ASSERT_EQ(Tasks(2).size(), 2u);
  Break(2);
  Form();
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  TrainAll(3);
  EXPECT_EQ(controller_->progress().committed_records, 100);
  // It must not come back with what it held.
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(1);
  hello.mutable_hello()->set_resuming(true);
  Say(4, hello);
  EXPECT_TRUE(absl::IsFailedPrecondition(output_.closed[4]));
  // Not by its own exit code, which would count against its slot.
  EXPECT_THAT(output_.killed, testing::Contains(1));
}

TEST_P(SuccessionTest, ShardsAreLearntFromAWorkerThatComesBack) {
  options_.data_error = absl::NotFoundError("no such folder");
  options_.tasks.training_shards.clear();
  Begin();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  Say(1, hello);
  Restart();
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  v1::WorkerMessage ready;
  ready.mutable_ready()->set_has_shards(true);
  *ready.mutable_ready()->add_training_shards() = MakeShard("table", 40);
  id_of_[2] = 0;
  Say(2, ready);
  Form();
  EXPECT_EQ(Tasks(2).size(), 2u);
  EXPECT_FALSE(controller_->ending());
}

// It has a stream, but hangs before it is ready: what it holds goes to others.
TEST_P(SuccessionTest, WhoIsNotReadyInTimeIsFenced) {
  options_.resume_step_grace = 2 * options_.resume_grace;
  Begin();
  Attach(1, 0);
  Restart();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(0);
  hello.mutable_hello()->set_resuming(true);
  Say(2, hello);
  // A long step is no hang.
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_EQ(output_.closed.count(2), 0u);
  now_ += options_.resume_step_grace;
  controller_->OnTimer(now_);
  ASSERT_EQ(output_.closed.count(2), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(output_.closed[2]));
  EXPECT_THAT(output_.killed, testing::ElementsAre(0));
}

// It has a stream and loses it before it is ready: the others do not wait.
TEST_P(SuccessionTest, WhoIsLostBeforeItIsReadyIsNotWaitedFor) {
  for (const bool process_first : {false, true}) {
    journal_.clear();
    options_.has_pods = true;
    Begin();
    Attach(1, 0);
    Attach(2, 1);
    Restart();
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(1);
    hello.mutable_hello()->set_resuming(true);
    Say(4, hello);
    ComeBack(3, 0, /*last_task_id=*/0);
    EXPECT_EQ(controller_->Activity(), "waiting for the workers to come back");
    if (process_first) {
      controller_->OnWorkerEnded(now_, 1, {/*crashed=*/false, "killed"});
    } else {
      controller_->OnClosed(now_, 4, absl::UnavailableError("broken"));
    }
    EXPECT_NE(controller_->Activity(), "waiting for the workers to come back");
  }
}

// Its process may hang; it would be in the way of another.
TEST_P(SuccessionTest, TheProcessOfWhoDoesNotComeBackIsKilled) {
  options_.has_pods = true;
  Begin();
  Attach(1, 0);
  Attach(2, 1);
  Restart();
  ComeBack(3, 0, /*last_task_id=*/0);
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::ElementsAre(1));
}

// Evaluations are not recorded; the next master must not give their ids to
// other tasks, or a worker's word about one is taken for the other.
TEST_P(SuccessionTest, IdsOfTasksAreNotUsedAgain) {
  Begin();
  Attach(1, 0);
  const int64_t first = Tasks(1)[0].task_id();
  for (int masters = 0; masters < 2; ++masters) Restart();
  Attach(3, 1);
  now_ += options_.resume_grace;
  controller_->OnTimer(now_);
  Form();
  const auto tasks = Tasks(3);
  ASSERT_FALSE(tasks.empty());
  EXPECT_GT(tasks[0].task_id(), first + 2 * (int64_t{1} << 32));
}

TEST_P(SuccessionTest, AnIncompleteJournalWithoutAStepStartsAgain) {
  Begin();
  Attach(1, 0);
  options_.replay_incomplete = true;
  Restart();
  Attach(2, 1);
  TrainAll(2);
  EXPECT_EQ(controller_->progress().committed_records, 100);
}

INSTANTIATE_TEST_SUITE_P(Journal, SuccessionTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Shortened" : "Whole";
                         });

// ---- states that outlive their workers ----

class FakeKeptStates : public KeptStates {
 public:
  void Keep(int64_t, pid_t, int) override {}
  std::vector<int64_t> Workers() const override {
    std::vector<int64_t> ids;
    for (const auto& [id, facts] : kept) ids.push_back(id);
    return ids;
  }
  bool HasEnded(int64_t worker_id) const override {
    return running.count(worker_id) == 0;
  }
  absl::StatusOr<Kept> Look(int64_t worker_id) const override {
    return Kept{worker_id, absl::StrCat("memory-", worker_id),
                kept.at(worker_id)};
  }
  void Drop(int64_t worker_id) override { kept.erase(worker_id); }

  std::map<int64_t, keep::Facts> kept;
  std::set<int64_t> running;
};

class KeptStatesTest : public JobControllerTest {
 protected:
  // One worker has reported step 1 with 10 records, and has died at step 3.
  void LoseWorker() {
    options_.kept_states = &states_;
    Start();
    Attach(1, 0);
    Commit(1, Tasks(1).at(0), 10);
    states_.kept[0] = {3, lineage_, 0.1, {{0, 30}}};
    states_.running = {0};
    controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
    id_of_.erase(1);
    prepared_.clear();
  }
  void EndWorker() {
    states_.running.clear();
    controller_->OnWorkerEnded(now_, 0, {false, "signal 9 (SIGKILL)"});
  }
  // A worker that does nothing when it is told to enter a world.
  void BeReady(ConnectionId connection, int64_t worker_id) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(worker_id);
    Say(connection, hello);
    v1::WorkerMessage ready;
    ready.mutable_ready();
    Say(connection, ready);
  }
  int64_t committed() { return controller_->progress().committed_records; }

  FakeKeptStates states_;
};

TEST_F(KeptStatesTest, TheNextWorkerGoesOnWithIt) {
  LoseWorker();
  Attach(2, 1);
  EXPECT_EQ(prepared_.count(2), 0u) << "the dead one may still write";
  EndWorker();
  EXPECT_EQ(committed(), 30);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  EXPECT_EQ(prepared_[2].cold_step(), 3);
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_TRUE(states_.kept.empty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// Whoever crashes with it does so because of the model or the data, and counts.
TEST_F(KeptStatesTest, WhatTheJobBeganWithIsNotTakenOver) {
  options_.kept_states = &states_;
  Start();
  Attach(1, 0);
  states_.kept[0] = {0, lineage_, 0, {}};
  controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
  id_of_.erase(1);
  prepared_.clear();
  controller_->OnWorkerEnded(now_, 0, {true, "signal 11 (SIGSEGV)"});
  EXPECT_TRUE(states_.kept.empty());
  Attach(2, 1);
  ASSERT_EQ(prepared_.count(2), 1u);
  EXPECT_TRUE(prepared_[2].cold());
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_FALSE(controller_->BlamedOnOther(1));
  // Nothing was lost.
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  EXPECT_THAT(output_.given_up, testing::IsEmpty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// It was trained, though nobody has heard of it yet.
TEST_F(KeptStatesTest, AStepThatWasNotReportedIsTakenOver) {
  options_.kept_states = &states_;
  Start();
  Attach(1, 0);
  states_.kept[0] = {1, lineage_, 0.1, {{0, 10}}};
  controller_->OnClosed(now_, 1, absl::UnavailableError("stream broken"));
  id_of_.erase(1);
  prepared_.clear();
  controller_->OnWorkerEnded(now_, 0, {false, "signal 9 (SIGKILL)"});
  EXPECT_EQ(committed(), 10);
  Attach(2, 1);
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

// It may be stopped or wait for a disk: it is alive, and could go on writing.
TEST_F(KeptStatesTest, WhoHangsIsKilledFirst) {
  LoseWorker();
  Attach(2, 1);
  EXPECT_THAT(output_.killed, testing::IsEmpty());
  now_ = controller_->NextTimer();
  controller_->OnTimer(now_);
  EXPECT_THAT(output_.killed, testing::Contains(0));
  EXPECT_EQ(prepared_.count(2), 0u);
  EndWorker();
  EXPECT_EQ(committed(), 30);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "memory-0");
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

TEST_F(KeptStatesTest, WhoDoesNotEndInTimeDoesNotCount) {
  LoseWorker();
  Attach(2, 1);
  const absl::Time late = now_ + 2 * options_.end_grace;
  while (controller_->NextTimer() < late) {
    now_ = controller_->NextTimer();
    controller_->OnTimer(now_);
  }
  Form();
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

TEST_F(KeptStatesTest, AnotherLineageIsRefused) {
  LoseWorker();
  states_.kept[0].lineage = lineage_ + 1;
  EndWorker();
  Attach(2, 1);
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  EXPECT_THAT(output_.messages, testing::Contains(HasSubstr("cannot be used")));
}

// Two in a row that crash before they are level: nobody can begin with it.
TEST_F(KeptStatesTest, AStateThatCrashesItsHeirsIsGivenUp) {
  LoseWorker();
  EndWorker();
  for (int64_t id = 1; id <= 2; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
    BeReady(connection, id);
    const auto prepares = output_.Take(connection, v1::MasterMessage::kPrepare);
    ASSERT_EQ(prepares.size(), 1u);
    EXPECT_EQ(prepares[0].prepare().kept(), "memory-0");
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {true, "signal 11 (SIGSEGV)"});
    EXPECT_TRUE(controller_->BlamedOnOther(id));
  }
  Attach(4, 3);
  EXPECT_EQ(prepared_[4].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  EXPECT_THAT(output_.messages, testing::Contains(HasSubstr("took over")));
  EXPECT_THAT(output_.given_up, testing::ElementsAre(3));
  TrainAll(4);
  EXPECT_EQ(committed(), 100);
}

// They are level, but none of them comes to the next step. The first suspect is
// the data.
TEST_F(KeptStatesTest, AStateFromWhichNobodyGetsOnIsGivenUp) {
  LoseWorker();
  EndWorker();
  const int64_t most = options_.tasks.task_max_failures + 1;
  for (int64_t id = 1; id <= most; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    EXPECT_THAT(output_.cut_backs, testing::IsEmpty()) << id;
    Attach(connection, id);
    EXPECT_EQ(prepared_[connection].kept(), absl::StrCat("memory-", id - 1));
    states_.kept[id] = {3, lineage_, 0.1, {}};
    id_of_.erase(connection);
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {true, "signal 11 (SIGSEGV)"});
  }
  EXPECT_THAT(output_.given_up, testing::ElementsAre(3));
  EXPECT_THAT(output_.messages,
              testing::Contains(HasSubstr("crashed before the next one")));
  Attach(90, 90);
  EXPECT_EQ(prepared_[90].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
}

// The state goes on to be used when heirs are killed from outside.
TEST_F(KeptStatesTest, HeirsThatAreKilledDoNotCount) {
  LoseWorker();
  EndWorker();
  for (int64_t id = 1; id <= 5; ++id) {
    const ConnectionId connection = static_cast<ConnectionId>(id) + 1;
    BeReady(connection, id);
    controller_->OnClosed(now_, connection, absl::UnavailableError("broken"));
    controller_->OnWorkerEnded(now_, id, {false, "signal 9 (SIGKILL)"});
  }
  Attach(9, 6);
  EXPECT_EQ(prepared_[9].kept(), "memory-0");
  EXPECT_THAT(output_.cut_backs, testing::IsEmpty());
}

TEST_F(KeptStatesTest, WhatCannotBeUsedIsRolledBack) {
  LoseWorker();
  EndWorker();
  BeReady(2, 1);
  const auto prepares = output_.Take(2, v1::MasterMessage::kPrepare);
  ASSERT_EQ(prepares.size(), 1u);
  EXPECT_EQ(prepares[0].prepare().kept(), "memory-0");
  v1::WorkerMessage failed;
  failed.mutable_world_failed()->set_generation(
      prepares[0].prepare().generation());
  failed.mutable_world_failed()->set_kept_unusable(true);
  id_of_[2] = 1;
  Say(2, failed);
  now_ += absl::Seconds(1);
  controller_->OnTimer(now_);
  Form();
  EXPECT_EQ(prepared_[2].kept(), "");
  EXPECT_THAT(output_.cut_backs, testing::ElementsAre(0));
  TrainAll(2);
  EXPECT_EQ(committed(), 100);
}

}  // namespace
}  // namespace elasticdl::master
