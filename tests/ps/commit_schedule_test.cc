// Synchronous versions while servers come and go and parts of the model are
// taken over: the master of a job and the states of its servers, in any order
// of what they say to each other. A server gets commits and steps of moves from
// two queues, as the threads of elasticdl-ps do, and the master repeats what it
// has said to everyone who takes over or comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/ps/bucket_mover.h"
#include "exact_model.h"
#include "master/job_controller_ps.h"
#include "model.h"

namespace elasticdl::master {
namespace {

using ps::BucketMap;
using ps::TestServer;

constexpr int kMostServers = 4;
constexpr ConnectionId kWorker = 1;

class CommitScheduleTest : public JobControllerPsTest {
 protected:
  struct Inbox {
    std::deque<v1::PsCommit> commits;
    std::deque<v1::MoveBuckets> steps;
  };

  void Begin(uint64_t seed) {
    random_.seed(seed);
    options_.tasks.training_shards[0].set_end(8000);
    options_.job.set_grads_to_wait(1);
    Start();
    ASSERT_TRUE(controller_->Begin(now_).ok());
    for (int i = 0; i < kMostServers; ++i) servers_.emplace_back(i);
    inboxes_.resize(kMostServers);
    ps::Begin(definition_, BucketMap::Even(2), servers_);
    for (int i = 0; i < 2; ++i) controller_->OnServerAttached(now_, i, 0);
    Attach(kWorker, 0);
  }

  void Act() {
    now_ += absl::Milliseconds(1);
    controller_->OnTimer(now_);
    Deliver();
    const auto number = static_cast<int>(random_() % kMostServers);
    switch (random_() % 8) {
      case 0:
      case 1:
        return Train();
      case 2:
        return Repeat(number);
      case 3:
        if (random_() % 10 == 0) {
          controller_->ScaleServers(now_, 1 + static_cast<int>(random_() % 3));
        }
        return AttachNew();
      case 4:
      case 5:
        return HandleCommit(number);
      default:
        return HandleStep(number);
    }
  }

  // What the master has said.
  void Deliver() {
    for (int i = 0; i < kMostServers; ++i) {
      for (const v1::MasterMessage& message :
           std::exchange(output_.to_servers[i], {})) {
        Inbox& inbox = inboxes_[static_cast<size_t>(i)];
        if (message.has_commit()) inbox.commits.push_back(message.commit());
        if (message.has_move_buckets()) {
          // Only the newest counts.
          inbox.steps = {message.move_buckets()};
        }
      }
    }
    for (const auto& message :
         output_.Take(kWorker, v1::MasterMessage::kPushResult)) {
      const int64_t version = message.push_result().version();
      if (version > 0) {
        version_ = version;
        ++trained_;
      }
      waits_ = false;
    }
  }

  // The part of the model is taken over, by a copy that has everything: the
  // master repeats what is open. What the queues have is still handled.
  void Repeat(int number) {
    if (number >= controller_->num_servers()) return;
    TestServer& server = servers_[static_cast<size_t>(number)];
    if (server.state->map().empty()) return;
    controller_->OnServerDetached(number);
    controller_->OnServerAttached(now_, number, server.state->version());
  }

  void AttachNew() {
    for (int i = attached_; i < controller_->num_servers(); ++i) {
      controller_->OnServerAttached(now_, i, 0);
      attached_ = i + 1;
    }
  }

  // A minibatch to all servers of the map that they have; when all have it, the
  // master hears of it.
  void Train() {
    if (waits_) return;
    const std::vector<v1::Task> tasks = Tasks(kWorker);
    const v1::Task* task = nullptr;
    const int64_t begin = trained_ * 10;
    for (const v1::Task& each : tasks) {
      if (each.range().begin() <= begin && begin < each.range().end()) {
        task = &each;
      }
    }
    if (task == nullptr) return;
    const BucketMap map = servers_[0].state->map();
    ps::Gradient gradient = ps::ExactGradient(definition_, trained_);
    gradient.name.set_shard(task->range().shard());
    gradient.name.set_epoch(task->range().epoch());
    gradient.name.set_begin(begin);
    gradient.name.set_end(begin + 10);
    for (int i = 0; i < map.servers(); ++i) {
      ps::EntryBytes part = ps::PartOf(gradient, definition_, map, i);
      part.entry.mutable_push()->set_stage(true);
      part.entry.mutable_push()->set_base_version(version_);
      const absl::Status status =
          servers_[static_cast<size_t>(i)].Accept(part.entry, part.payload);
      if (!status.ok() && !absl::IsAlreadyExists(status)) return;
    }
    waits_ = true;
    map_version_ = map.version();
    Stage(kWorker, *task, begin, version_);
  }

  void HandleCommit(int number) {
    Inbox& inbox = inboxes_[static_cast<size_t>(number)];
    if (inbox.commits.empty()) return;
    const v1::PsCommit commit = inbox.commits.front();
    inbox.commits.pop_front();
    v1::PsEntry entry;
    *entry.mutable_commit() = commit;
    const absl::Status done =
        servers_[static_cast<size_t>(number)].Accept(entry, "");
    v1::WorkerMessage message;
    v1::ServerCommitted& committed = *message.mutable_server_committed();
    committed.set_version(commit.version());
    if (!done.ok() && !absl::IsAlreadyExists(done)) {
      committed.set_error(std::string(done.message()));
    }
    controller_->OnServerMessage(now_, number, message);
  }

  // One action of the step.
  void HandleStep(int number) {
    Inbox& inbox = inboxes_[static_cast<size_t>(number)];
    if (inbox.steps.empty()) return;
    const v1::MoveBuckets step = inbox.steps.front();
    TestServer& server = servers_[static_cast<size_t>(number)];
    const auto action = ps::NextMoveAction(
        number, step,
        {server.state->defined(), server.state->map().version(),
         server.state->awaited(), server.state->leaving()});
    ASSERT_TRUE(action.ok()) << action.status();
    using Kind = ps::MoveAction::Kind;
    v1::PsEntry entry;
    std::string payload;
    if (action->kind == Kind::kDone) {
      inbox.steps.pop_front();
      v1::WorkerMessage message;
      v1::ServerMoved& moved = *message.mutable_server_moved();
      moved.set_map_version(step.map().version());
      moved.set_forget_before(step.forget_before());
      return controller_->OnServerMessage(now_, number, message);
    }
    if (action->kind == Kind::kForget) {
      entry.mutable_forget()->set_bucket(action->bucket);
      entry.mutable_forget()->set_map_version(action->map_version);
    } else if (action->kind == Kind::kDefine) {
      *entry.mutable_definition() = definition_;
    } else if (action->kind == Kind::kMap) {
      *entry.mutable_map() = step.map();
    } else {
      v1::PsFetch fetch;
      fetch.set_bucket(action->bucket);
      fetch.set_map_version(step.map().version());
      v1::PsReply reply;
      ps::Buffer bytes;
      const absl::Status fetched =
          servers_[static_cast<size_t>(action->from)].state->Fetch(fetch, reply,
                                                                   bytes);
      if (absl::IsUnavailable(fetched)) return;
      ASSERT_TRUE(fetched.ok()) << fetched;
      entry = reply.entry();
      payload = std::string(bytes.view());
    }
    const absl::Status status = server.Accept(entry, payload);
    ASSERT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
  }

  const v1::PsDefinition definition_ = ps::ExactDefinition();
  std::mt19937_64 random_;
  std::vector<TestServer> servers_;
  std::vector<Inbox> inboxes_;
  int attached_ = 2;
  bool waits_ = false;
  int64_t version_ = 0;
  int64_t trained_ = 0;
};

class CommitSchedules : public CommitScheduleTest,
                        public testing::WithParamInterface<int> {};

TEST_P(CommitSchedules, NothingThatIsSaidAgainFailsTheJob) {
  Begin(static_cast<uint64_t>(GetParam()));
  for (int i = 0; i < 6000 && !controller_->ending() && !HasFatalFailure();
       ++i) {
    Act();
  }
  ASSERT_FALSE(controller_->ending()) << "seed " << GetParam();
  EXPECT_GT(trained_, 20) << "seed " << GetParam();
  EXPECT_GT(servers_[0].state->map().version(), 3) << "seed " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Seeds, CommitSchedules, testing::Range(1, 41));

}  // namespace
}  // namespace elasticdl::master
