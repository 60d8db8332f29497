// Jobs of `make chaos` with parameter servers: every record once, on every
// server. The model counts (zoo/tally.cc).
#include <signal.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/chaos_run.h"
#include "integration/tally_replay.h"

namespace elasticdl::test {
namespace {

// Enough that a job at a walk outlives its chaos.
constexpr int64_t kManyEpochs = 15;
constexpr int64_t kMinibatch = 8;

// Parts of the names of pods.
constexpr char kServer[] = "elasticdl-ps-";
constexpr char kWorker[] = "elasticdl-worker-";
constexpr char kAnybody[] = "";

class PsRun : public ChaosRun {
 public:
  using ChaosRun::ChaosRun;

 protected:
  std::unique_ptr<Job> StartRandomJob() override;
  std::string Examine(Job& job) override;
  void Act(Job& job) override;

 private:
  Flags RandomFlags();
  std::string RandomFailpoint();
  // A job with these servers and workers.
  std::unique_ptr<Job> StartServed(const std::string& name, int64_t workers,
                                   int64_t servers, const Flags& more);
  // What the model of a job that succeeded has counted wrongly.
  std::string CheckTally(Job& job);
  // How the servers' tables differ from a replay of the audit in one process.
  // `before`: the job that this one continues from this step.
  std::string CheckTables(Job& job, const Job* before = nullptr,
                          int64_t first_step = 0);
  // Goes on from one of its checkpoints with another number of servers.
  std::string Continue(const Job& before);

  // Gradients of a synchronous version; 0: asynchronous.
  int64_t grads_to_wait_ = 0;
  // The number of servers stays then.
  bool backup_ = false;
};

std::string PsRun::RandomFailpoint() {
  static constexpr const char* kOfWorkers[] = {
      "worker.pull",       "worker.push",      "ps.between_servers",
      "worker.pushed",     "worker.forward",   "worker.evaluate",
      "worker.read_model", "checkpoint.write", "checkpoint.rename",
      "worker.train_end"};
  static constexpr const char* kOfServers[] = {"ps.log", "ps.apply", "ps.reply",
                                               "ps.replicate"};
  static constexpr const char* kSeldom[] = {"ps.synchronize", "ps.snapshot",
                                            "ps.snapshot_written", "ps.read"};
  if (Chance(60)) {
    return absl::StrCat(Random(0, 5), ":", OneOf(kOfWorkers),
                        Chance(15) ? "=stop@" : "=kill@", Random(1, 60));
  }
  // Each successor counts anew, and must get further than it will be sent back.
  const bool often = Chance(60);
  return absl::StrCat(Random(0, 2), ":",
                      often ? OneOf(kOfServers) : OneOf(kSeldom), "=kill@",
                      often ? Random(200, 600) : Random(5, 12));
}

Flags PsRun::RandomFlags() {
  Flags flags;
  if (grads_to_wait_ == 0 && Chance(20)) {
    flags.push_back(absl::StrCat("--get_model_steps=", Random(2, 5)));
  }
  if (grads_to_wait_ > 0 && Chance(30)) {
    flags.push_back(absl::StrCat("--sync_version_tolerance=", Random(1, 3)));
  }
  // Of the 12 KB of a push to all servers.
  if (Chance(50)) {
    flags.push_back(
        absl::StrCat("--ps_snapshot_bytes=", Random(100, 2000) * 1000));
  }
  if (Chance(50)) {
    flags.push_back(absl::StrCat("--checkpoint_steps=", Random(20, 200)));
  }
  if (Chance(40)) {
    flags.push_back(absl::StrCat("--evaluation_steps=", Random(50, 400)));
  }
  if (Chance(50)) {
    flags.push_back("--failpoints=" + RandomFailpoint() +
                    (Chance(30) ? ";" + RandomFailpoint() : ""));
  }
  return flags;
}

void PsRun::Act(Job& job) {
  const int64_t dice = Random(1, 100);
  if (dice <= 20) {
    Hit(kServer, 1, SIGKILL, tally_.kills);
  } else if (dice <= 40) {
    Hit(kWorker, 1, SIGKILL, tally_.kills);
  } else if (dice <= 50) {
    Hit(kAnybody, 2, SIGKILL, tally_.kills);
  } else if (dice <= 54) {
    Hit(kServer, CountRunning(kServer), SIGKILL, tally_.kills);
  } else if (dice <= 58) {
    Hit(kAnybody, CountRunning(kAnybody), SIGKILL, tally_.kills);
  } else if (dice <= 66) {
    Hit(kServer, 1, SIGSTOP, tally_.stops);
  } else if (dice <= 74) {
    Hit(kWorker, 1, SIGSTOP, tally_.stops);
  } else if (dice <= 80) {
    Hit(kAnybody, 1, SIGTERM, tally_.terms);
  } else if (dice <= 86) {
    HitMaster(job);
  } else if (dice <= 93 || backup_) {
    ScaleTo(job, "num_workers", Random(1, 4));
  } else {
    ScaleTo(job, "num_ps_pods", Random(1, 3));
  }
}

std::unique_ptr<Job> PsRun::StartServed(const std::string& name,
                                        int64_t workers, int64_t servers,
                                        const Flags& more) {
  Flags flags = {"--distribution_strategy=ParameterServerStrategy",
                 "--model_def=tally.custom_model",
                 "--training_data=" + chaos_csv(),
                 "--validation_data=" + chaos_csv(),
                 absl::StrCat("--num_workers=", workers),
                 absl::StrCat("--num_ps_pods=", servers),
                 absl::StrCat("--num_epochs=", kManyEpochs),
                 absl::StrCat("--minibatch_size=", kMinibatch),
                 absl::StrCat("--model_params=dense=3000;pace=", pace()),
                 "--worker_timeout=2",
                 "--worker_start_timeout=30",
                 "--ps_audit=" + Path(name + "-applied"),
                 "--checkpoint_dir=" + Path(name + "-saved"),
                 absl::StrCat("--seed=", seed() % 1000)};
  flags.push_back(grads_to_wait_ == 0
                      ? std::string("--use_async")
                      : absl::StrCat("--grads_to_wait=", grads_to_wait_));
  // The replay takes positions for records where that makes a difference.
  if (grads_to_wait_ > 1) flags.push_back("--shuffle=false");
  flags.insert(flags.end(), more.begin(), more.end());
  return Train(name, flags);
}

std::unique_ptr<Job> PsRun::StartRandomJob() {
  const int64_t workers = Random(1, 3);
  const int64_t servers = Random(1, 3);
  grads_to_wait_ = Chance(50) ? 0 : Chance(60) ? 1 : Random(2, 4);
  backup_ = servers > 1 && Chance(40);
  Flags flags = RandomFlags();
  if (backup_) flags.push_back("--ps_backup=1");
  settings_ = absl::StrCat(
      workers, " workers and ", servers, " servers at first, ", grads_to_wait_,
      " gradients to wait for, ", absl::StrJoin(flags, " "));
  return StartServed("chaos", workers, servers, flags);
}

std::string PsRun::CheckTally(Job& job) {
  const std::vector<Json> evaluations = job.Events("evaluation");
  std::map<std::string, double> metrics;
  if (!evaluations.empty()) metrics = evaluations.back().at("metrics");
  // A version counts once, however many minibatches it is the mean of.
  const bool by_minibatch = grads_to_wait_ <= 1;
  const int64_t versions = by_minibatch ? kRecords / kMinibatch * kManyEpochs
                                        : job.End().at("step").get<int64_t>();
  std::map<std::string, double> expected = {{"least", -versions},
                                            {"most", -versions}};
  if (by_minibatch) {
    expected["row"] = expected["other_row"] = -kManyEpochs;
    expected["row_squared"] = kManyEpochs * kManyEpochs;
  }
  std::string complaint;
  for (const auto& [name, value] : expected) {
    if (metrics.count(name) > 0 && metrics[name] == value) continue;
    tally_.model_mismatches = 1;
    absl::StrAppend(&complaint, job.name(), ": ", name, " is ", metrics[name],
                    " instead of ", value, "; ");
  }
  return complaint;
}

std::string PsRun::CheckTables(Job& job, const Job* before,
                               int64_t first_step) {
  TallyReplay replay(/*async=*/grads_to_wait_ == 0, kMinibatch);
  if (before != nullptr) replay.Train(before->audit(), first_step);
  replay.Train(job.audit());
  const std::string differences = replay.Compare(job.Flag("--checkpoint_dir"));
  if (differences.empty()) return "";
  tally_.model_mismatches = 1;
  return absl::StrCat(job.name(), ": ", differences);
}

std::string PsRun::Continue(const Job& before) {
  const std::string checkpoints = before.Flag("--checkpoint_dir");
  const std::vector<int64_t> versions = Versions(checkpoints);
  if (versions.empty()) return "";
  const int64_t version =
      versions[static_cast<size_t>(Random(0, versions.size() - 1))];
  // The last one is of a training that is complete.
  if (version == versions.back()) return "";
  const auto job =
      StartServed("again", Random(1, 2), Random(1, 3),
                  {absl::StrCat("--checkpoint_dir_for_init=", checkpoints,
                                "/version-", version)});
  if (job->Wait() == 0) {
    return absl::StrCat(CheckTally(*job), CheckTables(*job, &before, version));
  }
  tally_.failed_jobs = 1;
  return absl::StrCat("from version ", version, ": ", job->Output());
}

std::string PsRun::Examine(Job& job) {
  const testing::AssertionResult ledger = ChaosLedgerIsExact(
      job, kManyEpochs, PsAudits(Path(job.name() + "-applied")));
  if (!ledger) tally_.ledger_violations = 1;
  std::string complaint =
      absl::StrCat(ledger.message(), CheckTally(job), CheckTables(job));
  if (!CutBacks(job).empty()) {
    tally_.model_mismatches = 1;
    absl::StrAppend(&complaint, "it fell back to an older model; ");
  }
  return absl::StrCat(complaint, Continue(job));
}

}  // namespace

std::unique_ptr<ChaosRun> MakePsRun(int64_t seed) {
  return std::make_unique<PsRun>(seed);
}

}  // namespace elasticdl::test
