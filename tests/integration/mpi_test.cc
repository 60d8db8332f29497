// Workers started by mpirun (docs/mpi.md): a master by hand, --collective=mpi.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "integration/job.h"
#include "support/mpirun.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kEpochs = 5;

Flags Concat(const std::vector<Flags>& parts) {
  Flags all;
  for (const Flags& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

class MpiTest : public JobTest {
 protected:
  void SetUp() override {
    version_ = FindMpirunVersion();
    if (version_ == 0 ||
        access(Program("../lib/elasticdl/libelasticdl_mpi.so").c_str(), R_OK) !=
            0) {
      GTEST_SKIP() << "no Open MPI: libopenmpi-dev, openmpi-bin";
    }
  }

  // Steps take 100 ms until Go.
  void StartMaster(const Flags& more) {
    Flags argv = {Program("elasticdl-master"),
                  "--job_name=mpi",
                  "--pod_backend=none",
                  "--collective=mpi",
                  "--model_zoo=" + Zoo(),
                  "--model_def=linear.custom_model",
                  "--model_params=pace=" + dir(),
                  "--training_data=" + train_csv(),
                  absl::StrCat("--num_epochs=", kEpochs),
                  "--minibatch_size=8",
                  "--num_minibatches_per_task=2",
                  "--num_threads=1",
                  "--port=0",
                  "--event_log=" + Path("events"),
                  "--ledger_audit=" + Path("audit")};
    argv.insert(argv.end(), more.begin(), more.end());
    master_ = Run("master", argv);
    LineFollower log(master_->err_path());
    while (const auto line = log.Next()) {
      if (!absl::StrContains(*line, "listens on ")) continue;
      address_ = "localhost:" + line->substr(line->rfind(':') + 1);
      break;
    }
    events_ = std::make_unique<LineFollower>(Path("events"));
  }

  Flags WorkerCommand() const {
    return {Program("elasticdl-worker"), "--master_addr=" + address_};
  }

  void StartRanks(int count, const Flags& options = {}) {
    StartRanksWith(count, Concat({MpirunRecovery(version_), options}));
  }
  void StartRanksWith(int count, const Flags& options) {
    ranks_ = Run("ranks", Concat({{"env", "OMPI_ALLOW_RUN_AS_ROOT=1",
                                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "mpirun",
                                   "-np", absl::StrCat(count)},
                                  MpirunPlacement(version_),
                                  options,
                                  WorkerCommand()}));
  }

  // Waits for a world of these many members and gives the event.
  Json WaitForWorld(size_t size) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (const auto line = events_->Next(deadline - absl::Now())) {
      Json event = Json::parse(*line);
      if (event.at("event") == "world" && event.at("members").size() == size) {
        return event;
      }
    }
    ADD_FAILURE() << "no world of " << size << "; " << Said();
    return Json();
  }

  // Process of a worker: the ranks log which worker they are, the kernel knows
  // which process is which rank.
  pid_t PidOf(int64_t worker) {
    std::string rank;
    for (const std::string& line : Lines(ranks_->err_path())) {
      const std::string mark = absl::StrCat("[worker ", worker, "] MPI rank ");
      const size_t at = line.find(mark);
      if (at == std::string::npos) continue;
      rank = line.substr(at + mark.size());
      rank = rank.substr(0, rank.find(' '));
    }
    EXPECT_FALSE(rank.empty()) << worker << ": " << Said();
    for (const std::string& pid : Children(ranks_->pid())) {
      const std::string environment =
          Contents(absl::StrCat("/proc/", pid, "/environ"));
      const std::string wanted = "OMPI_COMM_WORLD_RANK=" + rank;
      for (const absl::string_view variable :
           absl::StrSplit(environment, '\0')) {
        int number = 0;
        if (variable == wanted && absl::SimpleAtoi(pid, &number)) return number;
      }
    }
    ADD_FAILURE() << "no process of worker " << worker << "; " << Said();
    return 0;
  }

  void Go() { std::ofstream(Path("go")) << "\n"; }

  void ExpectSuccess(int exit_of_mpirun = 0) {
    EXPECT_EQ(master_->Wait(), 0) << Said();
    EXPECT_EQ(ranks_->Wait(), exit_of_mpirun) << Said();
    EXPECT_TRUE(LedgerIsExact(Path("audit"), kEpochs)) << Said();
  }

  // What the workers log about a world. A death can damage MPI, which is then
  // noticed and logged.
  bool UsesMpiIfItWorks(const Json& world) {
    return UsedMpi(world) ||
           absl::StrContains(ranks_->err(), "continuing without MPI");
  }
  bool UsedMpi(const Json& world) {
    const std::string start =
        absl::StrCat("world ", world.at("generation").get<int64_t>(), ": ");
    // mpirun may pass it on later than the master writes the event.
    LineFollower log(ranks_->err_path());
    while (const auto line = log.Next()) {
      if (absl::StrContains(
              *line,
              absl::StrCat(start, world.at("members").size(), " members"))) {
        break;
      }
    }
    const std::string all = ranks_->err();
    const bool with = absl::StrContains(
        all,
        absl::StrCat(start, world.at("members").size(), " members over MPI"));
    const bool without = absl::StrContains(
        all, absl::StrCat(start, world.at("members").size(),
                          " members, not all in one MPI universe"));
    EXPECT_NE(with, without) << start << all;
    return with;
  }

  std::string Said() const {
    return absl::StrCat(master_ == nullptr ? "" : master_->err(),
                        ranks_ == nullptr ? "" : ranks_->err());
  }

  // Of mpirun.
  int version_ = 0;
  std::string address_;
  std::unique_ptr<ChildProcess> master_;
  std::unique_ptr<ChildProcess> ranks_;
  std::unique_ptr<LineFollower> events_;

 private:
  static std::vector<std::string> Children(pid_t pid) {
    std::vector<std::string> all;
    for (const std::string& task : List(absl::StrCat("/proc/", pid, "/task"))) {
      for (const absl::string_view child :
           absl::StrSplit(Contents(absl::StrCat("/proc/", pid, "/task/", task,
                                                "/children")),
                          ' ', absl::SkipWhitespace())) {
        all.emplace_back(child);
      }
    }
    return all;
  }
};

// Three train, one is spare: it takes the place of the first that is killed.
// The second one that is killed has no successor.
TEST_F(MpiTest, KilledRanksAreReplacedBySparesOrMissed) {
  StartMaster({"--num_workers=3", "--max_workers=3", "--min_workers=1"});
  StartRanks(4);
  const Json first = WaitForWorld(3);
  EXPECT_TRUE(UsedMpi(first));
  const pid_t survivor = PidOf(first.at("members").at(0));
  kill(PidOf(first.at("members").at(2)), SIGKILL);
  const Json second = WaitForWorld(3);
  EXPECT_TRUE(UsesMpiIfItWorks(second));
  EXPECT_EQ(second.at("members").at(0), first.at("members").at(0));
  kill(PidOf(second.at("members").at(1)), SIGKILL);
  const Json third = WaitForWorld(2);
  EXPECT_TRUE(UsesMpiIfItWorks(third));
  // In the same process, from the first world to the last.
  EXPECT_EQ(PidOf(third.at("members").at(0)), survivor);
  Go();
  ExpectSuccess();
}

TEST_F(MpiTest, OneIsLeftOfFour) {
  StartMaster({"--num_workers=4", "--min_workers=1"});
  StartRanks(4);
  Json world = WaitForWorld(4);
  for (size_t left = 3; left > 0; --left) {
    kill(PidOf(world.at("members").at(left % 2)), SIGKILL);
    world = WaitForWorld(left);
  }
  Go();
  ExpectSuccess();
}

// Seven of eight are killed at once. Seven spares bring the world back to its
// size; the next time there are none.
TEST_F(MpiTest, EightToOneAndBackBySpares) {
  constexpr size_t kMembers = 8;
  StartMaster({"--num_workers=8", "--max_workers=8", "--min_workers=1"});
  StartRanks(2 * kMembers - 1);
  const Json first = WaitForWorld(kMembers);
  EXPECT_TRUE(UsedMpi(first));
  const int64_t last = first.at("members").at(0);
  const pid_t survivor = PidOf(last);
  const auto kill_all_but_it = [&](const Json& world) {
    std::vector<pid_t> pids;
    for (const int64_t member : world.at("members")) {
      if (member != last) pids.push_back(PidOf(member));
    }
    for (const pid_t pid : pids) kill(pid, SIGKILL);
  };
  kill_all_but_it(first);
  const Json second = WaitForWorld(kMembers);
  EXPECT_EQ(second.at("members").at(0), last);
  const auto old = first.at("members").get<std::set<int64_t>>();
  for (const int64_t member : second.at("members")) {
    EXPECT_TRUE(member == last || old.count(member) == 0) << member;
  }
  EXPECT_TRUE(UsesMpiIfItWorks(second));
  kill_all_but_it(second);
  EXPECT_EQ(WaitForWorld(1).at("members").at(0), last);
  // The same process all the time.
  EXPECT_EQ(PidOf(last), survivor);
  Go();
  ExpectSuccess();
}

TEST_F(MpiTest, AWorkerFromOutsideMovesTheWorldAwayFromMpiUntilItLeaves) {
  StartMaster({"--num_workers=2", "--max_workers=3", "--min_workers=1"});
  StartRanks(2);
  EXPECT_TRUE(UsedMpi(WaitForWorld(2)));
  const auto outside = Run("outside", WorkerCommand());
  EXPECT_FALSE(UsedMpi(WaitForWorld(3)));
  EXPECT_THAT(outside->err(), HasSubstr("not started by mpirun"));
  outside->Signal(SIGTERM);
  EXPECT_TRUE(UsedMpi(WaitForWorld(2)));
  EXPECT_EQ(outside->Wait(), 0) << outside->err();
  Go();
  ExpectSuccess();
}

TEST_F(MpiTest, ARankLeavesOnSigterm) {
  StartMaster({"--num_workers=3", "--min_workers=1"});
  StartRanks(3);
  const Json first = WaitForWorld(3);
  kill(PidOf(first.at("members").at(1)), SIGTERM);
  EXPECT_TRUE(UsedMpi(WaitForWorld(2)));
  EXPECT_THAT(ranks_->err(), Not(HasSubstr("lost rank")));
  Go();
  ExpectSuccess();
}

// Its rank goes on without MPI, and the others with it.
TEST_F(MpiTest, ACallThatDoesNotReturnCostsMpiNotTheJob) {
  // Each step sends and receives a few messages.
  StartMaster({"--num_workers=3", "--min_workers=1",
               "--failpoints=1:mpi.start=delay(600000)@150"});
  StartRanks(3);
  EXPECT_TRUE(UsedMpi(WaitForWorld(3)));
  const Json next = WaitForWorld(3);
  EXPECT_FALSE(UsedMpi(next));
  EXPECT_THAT(ranks_->err(),
              HasSubstr("[worker 1] a call into MPI did not return"));
  Go();
  ExpectSuccess();
}

struct Refusal {
  const char* name;
  Flags options;
  const char* says;
};

TEST_F(MpiTest, LaunchesThatWouldNotSurviveADeathAreRefused) {
  const std::vector<Refusal> refusals = {
      {"no recovery", {}, "ends all ranks when one dies"},
      {"tcp BTL",
       Concat(
           {MpirunRecovery(version_),
            {"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}}),
       "tcp BTL"},
      {"UCX with CMA",
       Concat({MpirunRecovery(version_),
               {"--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
                "--mca", "opal_common_ucx_devices", "any"}}),
       "UCX_TLS=^cma"}};
  StartMaster({"--num_workers=2", "--min_workers=1"});
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    StartRanksWith(2, refusal.options);
    // With recovery mpirun's exit code does not tell.
    EXPECT_TRUE(ranks_->Wait() != 0 || !refusal.options.empty());
    EXPECT_THAT(ranks_->err(), AllOf(HasSubstr("--collective=mpi: "),
                                     HasSubstr(refusal.says)));
  }
  // The job waits for workers that can train.
  Go();
  StartRanks(2);
  ExpectSuccess();
}

TEST_F(MpiTest, NobodyButMpirunStartsTheWorkers) {
  const auto train =
      Run("train", {Program("elasticdl"), "train", "--collective=mpi",
                    "--model_zoo=" + Zoo(), "--model_def=linear.custom_model",
                    "--training_data=" + train_csv()});
  EXPECT_EQ(train->Wait(), 2);
  EXPECT_THAT(train->err(), HasSubstr("workers are started with mpirun"));
}

}  // namespace
}  // namespace elasticdl::test
