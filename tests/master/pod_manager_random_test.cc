// PodManager against a simulated cluster in random schedules: pods start late,
// die of everything, events repeat, creation fails, the target moves, the
// master starts anew. A failure prints its seed; --gtest_random_seed moves to
// other schedules.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pod_manager.h"

namespace elasticdl::master {
namespace {

constexpr int kSchedules = 1500;
constexpr int kSteps = 120;

// Executes decisions as a cluster would and checks what must always hold.
class Simulation {
 public:
  Simulation(uint64_t seed, bool failures, bool create_errors)
      : random_(seed),
        failures_(failures),
        create_errors_(create_errors),
        relaunches_(static_cast<int64_t>(random_() % 3)),
        servers_(static_cast<int64_t>(random_() % 4)),
        manager_(std::make_unique<PodManager>(
            Options(1 + static_cast<int64_t>(random_() % 5)))) {
    Execute(manager_->Start(now_));
  }

  void Run() {
    for (int i = 0; i < kSteps; ++i) {
      Step();
      Check();
    }
  }

  // No more trouble: everything that was asked for must come true.
  void Settle() {
    for (int i = 0; i < 200; ++i) {
      AdvanceToTimer();
      for (const std::string& name : Names()) {
        Pod& pod = pods_[name];
        if (pod.deleting) {
          Finish(name, PodPhase::kDeleted, PodEndReason::kDeleted, 0, 0);
        } else if (!pod.running) {
          Start(name);
        }
      }
      Check();
    }
    if (manager_->outcome().state != JobState::kRunning) return;
    int64_t running = 0;
    std::set<int64_t> servers;
    for (const auto& [name, pod] : pods_) {
      if (!pod.running) continue;
      if (pod.type == PodType::kWorker) {
        ++running;
      } else {
        servers.insert(pod.id);
      }
    }
    EXPECT_EQ(running + given_up_, ExpectedRunning());
    // 0 .. target-1, each once.
    const int64_t wanted = manager_->target(PodType::kPs);
    EXPECT_EQ(static_cast<int64_t>(servers.size()), wanted);
    EXPECT_TRUE(wanted == 0 || *servers.rbegin() == wanted - 1);
  }

  void CheckCleanEnd() {
    if (manager_->outcome().state == JobState::kRunning) {
      Execute(manager_->SetWorkDone(now_));
      for (const auto& [name, pod] : pods_) {
        EXPECT_FALSE(pod.type == PodType::kPs && pod.deleting && HasWorkers())
            << "a worker may still need " << name;
      }
    }
    // Workers first: servers are deleted when the last of them has ended.
    for (const PodType type : {PodType::kWorker, PodType::kPs}) {
      for (const std::string& name : Names()) {
        if (pods_[name].type != type) continue;
        EXPECT_TRUE(type == PodType::kWorker || pods_[name].deleting);
        Finish(name, PodPhase::kSucceeded, PodEndReason::kNone, 0, 0);
      }
    }
    EXPECT_TRUE(manager_->all_gone());
    EXPECT_EQ(manager_->next_wake(), absl::InfiniteFuture());
    EXPECT_NE(manager_->outcome().state, JobState::kRunning);
    EXPECT_FALSE(manager_->outcome().reason.empty());
  }

  // The master's container was killed: another one finds the pods and knows
  // nothing else but the target.
  void Restart() {
    if (manager_->outcome().state != JobState::kRunning) return;
    PodManagerOptions options = Options(manager_->target());
    options.num_servers = manager_->target(PodType::kPs);
    // With a journal ids go on; without one, those of pods that have left no
    // trace are free again.
    const bool journal = Chance(50);
    if (journal) options.first_worker_id = manager_->next_worker_id();
    manager_ = std::make_unique<PodManager>(options);
    given_up_since_target_ = 0;
    std::vector<PodEvent> existing = ended_;
    for (const auto& [name, pod] : pods_) {
      PodEvent event;
      event.name = name;
      event.type = pod.type;
      event.id = pod.id;
      event.attempt = PodAttempt(name);
      event.phase = pod.running ? PodPhase::kRunning : PodPhase::kPending;
      event.terminating = pod.deleting;
      existing.push_back(event);
    }
    // A new master's watch begins anew, too.
    last_event_ = PodEvent();
    if (!journal) {
      last_id_ = -1;
      for (const PodEvent& event : existing) {
        if (event.type == PodType::kWorker) {
          last_id_ = std::max(last_id_, event.id);
        }
      }
    }
    std::shuffle(existing.begin(), existing.end(), random_);
    manager_->Adopt(existing);
    Execute(manager_->Start(now_));
    Check();
  }

  const PodManager& manager() const { return *manager_; }
  int64_t given_up() const { return given_up_; }

 private:
  struct Pod {
    PodType type = PodType::kWorker;
    int64_t id = -1;
    bool running = false;
    bool deleting = false;
  };

  PodManagerOptions Options(int64_t workers) const {
    PodManagerOptions options;
    options.job_name = "r";
    options.num_workers = workers;
    options.num_servers = servers_;
    options.relaunch_on_worker_failure = relaunches_;
    options.attach_timeout = absl::Seconds(10);
    options.server_attach_timeout = absl::Seconds(10);
    return options;
  }

  int64_t ExpectedRunning() const {
    // SetTarget fills the places that were given up before it.
    return manager_->target() + given_up_ - given_up_since_target_;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, pod] : pods_) names.push_back(name);
    return names;
  }
  std::string Pick() {
    const std::vector<std::string> names = Names();
    return names.empty() ? "" : names[random_() % names.size()];
  }
  bool Chance(int percent) {
    return random_() % 100 < static_cast<uint64_t>(percent);
  }

  void AdvanceToTimer() {
    if (manager_->next_wake() == absl::InfiniteFuture()) return;
    now_ = std::max(now_, manager_->next_wake());
    Execute(manager_->OnTimer(now_));
  }

  void Step() {
    now_ += absl::Milliseconds(random_() % 3000);
    const std::string name = Pick();
    switch (random_() % 9) {
      case 0:
      case 1:
        if (!name.empty()) Start(name);
        break;
      case 2:
        if (!name.empty())
          Finish(name, PodPhase::kFailed, PodEndReason::kError, -1, 9);
        break;
      case 3:
        if (name.empty()) break;
        if (failures_) {
          Finish(name, PodPhase::kFailed, PodEndReason::kError, 1, 0);
        } else {
          Finish(name, PodPhase::kDeleted, PodEndReason::kDeleted, 0, 0);
        }
        break;
      case 4:
        if (Chance(30)) Scale();
        break;
      case 5:
        if (!name.empty() && pods_[name].deleting) {
          Finish(name, PodPhase::kDeleted, PodEndReason::kDeleted, -1, 9);
        }
        break;
      case 6:
        if (!last_event_.name.empty()) {
          Execute(manager_->OnPodEvent(last_event_, now_));
        }
        break;
      case 7:
        if (!name.empty() && !pods_[name].running) Pend(name);
        break;
      default:
        Execute(manager_->OnTimer(
            now_, [this](PodType, int64_t) { return Chance(80); }));
        AdvanceToTimer();
    }
  }

  void Scale() {
    const bool running = manager_->outcome().state == JobState::kRunning;
    const PodType type = Chance(30) ? PodType::kPs : PodType::kWorker;
    auto out = manager_->SetTarget(1 + static_cast<int64_t>(random_() % 6),
                                   now_, type);
    const bool possible = type == PodType::kWorker || servers_ > 0;
    EXPECT_EQ(out.ok(), running && possible) << out.status();
    if (!out.ok()) return;
    if (type == PodType::kWorker) given_up_since_target_ = 0;
    Execute(*out);
  }

  void Start(const std::string& name) {
    pods_[name].running = true;
    PodEvent event;
    event.name = name;
    event.phase = PodPhase::kRunning;
    Send(event);
  }

  void Pend(const std::string& name) {
    PodEvent event;
    event.name = name;
    event.phase = PodPhase::kPending;
    event.terminating = pods_[name].deleting;
    event.message = absl::StrCat("no room ", random_() % 3);
    Send(event);
  }

  void Finish(const std::string& name, PodPhase phase, PodEndReason reason,
              int exit_code, int signal) {
    PodEvent event;
    event.name = name;
    event.type = pods_[name].type;
    event.id = pods_[name].id;
    event.attempt = PodAttempt(name);
    event.phase = phase;
    event.reason = reason;
    event.exit_code = exit_code;
    event.signal = signal;
    const bool taken_away = signal == SIGKILL || phase == PodPhase::kDeleted;
    taken_away_ = taken_away && !pods_[name].deleting ? name : "";
    pods_.erase(name);
    // A cluster keeps pods that have ended by themselves.
    if (phase != PodPhase::kDeleted) ended_.push_back(event);
    Send(event);
    taken_away_.clear();
  }

  void Send(const PodEvent& event) {
    last_event_ = event;
    Execute(manager_->OnPodEvent(event, now_));
  }

  void Execute(const PodManager::Decisions& decisions) {
    for (const PodDecision& decision : decisions) {
      EXPECT_FALSE(decision.reason.empty());
      switch (decision.kind) {
        case PodDecision::Kind::kCreate:
          Create(decision);
          break;
        case PodDecision::Kind::kDelete:
          if (pods_.count(decision.name) != 0) {
            pods_[decision.name].deleting = true;
          }
          break;
        case PodDecision::Kind::kGaveUp:
          ++given_up_;
          ++given_up_since_target_;
          break;
        case PodDecision::Kind::kDelayed:
          if (decision.name == taken_away_) {
            EXPECT_LE(decision.at, now_ + absl::Seconds(1)) << decision.reason;
          }
          break;
        default:
          break;
      }
    }
  }

  void Create(const PodDecision& decision) {
    const auto who = manager_->Find(decision.name);
    ASSERT_TRUE(who.has_value());
    EXPECT_EQ(who->id, decision.id);
    EXPECT_EQ(who->type, decision.type);
    if (create_errors_ && Chance(20)) {
      refused_.insert(decision.name);
      // Sometimes the pod is there although the answer was an error.
      if (Chance(30)) Add(decision);
      if (Chance(50)) {
        Execute(manager_->CreateFailed(decision.name,
                                       absl::UnavailableError("later"), now_));
      } else {
        PodEvent event;
        event.name = decision.name;
        event.create_error = absl::ResourceExhaustedError("exceeded quota");
        Execute(manager_->OnPodEvent(event, now_));
      }
      return;
    }
    if (refused_.count(decision.name) == 0) {
      CheckIdentity(decision);
    }
    EXPECT_EQ(manager_->outcome().state, JobState::kRunning);
    Add(decision);
  }

  void Add(const PodDecision& decision) {
    pods_[decision.name].type = decision.type;
    pods_[decision.name].id = decision.id;
  }

  // Worker ids and the names of servers are never used twice, and no two pods
  // of one server exist at a time.
  void CheckIdentity(const PodDecision& decision) {
    if (decision.type == PodType::kWorker) {
      EXPECT_GT(decision.id, last_id_) << "an id was used twice";
      last_id_ = decision.id;
      return;
    }
    EXPECT_LT(decision.id, manager_->target(PodType::kPs));
    EXPECT_EQ(decision.name,
              PodName(PodType::kPs, "r", decision.id, decision.attempt));
    for (const auto& [name, pod] : pods_) {
      // One whose creation was reported as failed is deleted, but its end is
      // not waited for: it may never come.
      if (refused_.count(name) != 0 && pod.deleting) continue;
      EXPECT_FALSE(pod.type == PodType::kPs && pod.id == decision.id)
          << name << " is still there";
    }
    for (const PodEvent& ended : ended_) EXPECT_NE(ended.name, decision.name);
  }

  bool HasWorkers() const {
    return std::any_of(pods_.begin(), pods_.end(), [](const auto& pod) {
      return pod.second.type == PodType::kWorker;
    });
  }

  void Check() {
    std::map<PodType, int64_t> wanted;
    for (const auto& [name, pod] : pods_) {
      wanted[pod.type] += pod.deleting ? 0 : 1;
    }
    if (!create_errors_) {
      for (const auto& [type, count] : wanted) {
        EXPECT_LE(count, manager_->target(type)) << "more pods than asked for";
      }
    }
    for (const PodInfo& pod : manager_->pods()) {
      EXPECT_LE(pod.failures, relaunches_);
    }
    if (given_up_ == 0) {
      EXPECT_EQ(manager_->outcome().state, JobState::kRunning)
          << manager_->outcome().reason;
    }
  }

  std::mt19937_64 random_;
  const bool failures_;
  const bool create_errors_;
  const int64_t relaunches_;
  // How many the job has at first; 0: it never has any.
  const int64_t servers_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<PodManager> manager_;
  std::map<std::string, Pod> pods_;
  std::set<std::string> refused_;
  std::vector<PodEvent> ended_;
  PodEvent last_event_;
  int64_t last_id_ = -1;
  // The last one that ended, if it was taken away.
  std::string taken_away_;
  int64_t given_up_ = 0;
  int64_t given_up_since_target_ = 0;
};

class PodManagerRandomTest : public ::testing::Test {
 protected:
  uint64_t FirstSeed() const {
    return static_cast<uint64_t>(
               ::testing::UnitTest::GetInstance()->random_seed()) *
           1000003;
  }
};

TEST_F(PodManagerRandomTest, PreemptionAloneNeverLosesAWorker) {
  for (int i = 0; i < kSchedules && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", FirstSeed() + i));
    Simulation simulation(FirstSeed() + i, false, false);
    simulation.Run();
    simulation.Settle();
    EXPECT_EQ(simulation.given_up(), 0);
    EXPECT_EQ(simulation.manager().outcome().state, JobState::kRunning);
    simulation.CheckCleanEnd();
    EXPECT_EQ(simulation.manager().outcome().state, JobState::kSucceeded);
  }
}

TEST_F(PodManagerRandomTest, FailuresEndInAReasonNeverInALoop) {
  for (int i = 0; i < kSchedules && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", FirstSeed() + i));
    Simulation simulation(FirstSeed() + i, true, false);
    simulation.Run();
    simulation.Settle();
    simulation.CheckCleanEnd();
  }
}

TEST_F(PodManagerRandomTest, RestartedMastersFindTheirPods) {
  for (int i = 0; i < kSchedules / 4 && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", FirstSeed() + i));
    Simulation simulation(FirstSeed() + i, i % 3 == 0, i % 2 == 0);
    for (int restart = 0; restart < 4; ++restart) {
      simulation.Run();
      simulation.Restart();
    }
    simulation.Settle();
    simulation.CheckCleanEnd();
  }
}

TEST_F(PodManagerRandomTest, CreateErrorsAreOvercome) {
  for (int i = 0; i < kSchedules && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", FirstSeed() + i));
    Simulation simulation(FirstSeed() + i, true, true);
    simulation.Run();
    simulation.Settle();
    simulation.CheckCleanEnd();
  }
}

}  // namespace
}  // namespace elasticdl::master
