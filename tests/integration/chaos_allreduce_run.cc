// Jobs of `make chaos` with AllReduce: every record once, and one model on all
// members.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/chaos_run.h"

namespace elasticdl::test {
namespace {

// Enough that a job at a walk outlives its chaos.
constexpr int64_t kManyEpochs = 30;

class AllreduceRun : public ChaosRun {
 public:
  using ChaosRun::ChaosRun;

 protected:
  std::unique_ptr<Job> StartRandomJob() override;
  std::string Examine(Job& job) override;
  void Act(Job& job) override;

 private:
  Flags RandomFlags();
  std::string RandomParams();
  std::string RandomFailpoint();
};

Flags AllreduceRun::RandomFlags() {
  Flags flags = {absl::StrCat("--num_epochs=", kManyEpochs),
                 "--worker_timeout=2", "--worker_start_timeout=30",
                 absl::StrCat("--seed=", seed() % 1000)};
  if (Chance(50)) {
    flags.push_back("--checkpoint_dir=" + Path("checkpoints"));
    flags.push_back(absl::StrCat("--checkpoint_steps=", Random(5, 60)));
  }
  if (Chance(40)) {
    flags.push_back("--validation_data=" + test_csv());
    flags.push_back(absl::StrCat("--evaluation_steps=", Random(20, 200)));
  }
  if (Chance(50)) {
    flags.push_back(absl::StrCat("--collective=", Chance(50) ? "gloo" : "tcp"));
  }
  if (Chance(20)) flags.push_back("--grad_compression=bf16");
  if (Chance(20)) flags.push_back("--global_batch_size=48");
  if (Chance(60)) {
    flags.push_back("--background_join_mb=0.0001");
    flags.push_back(absl::StrCat("--join_bandwidth_mb=", Random(0, 3)));
  }
  if (Chance(50)) {
    flags.push_back("--failpoints=" + RandomFailpoint() +
                    (Chance(30) ? ";" + RandomFailpoint() : ""));
  }
  return flags;
}

std::string AllreduceRun::RandomParams() {
  std::string params;
  // Sometimes too large to be copied for a checkpoint.
  if (Chance(40)) {
    params = Chance(25) ? "ballast=2500000" : "ballast=300000";
  }
  if (Chance(30)) {
    absl::StrAppend(&params, params.empty() ? "" : ";", "batch_norm=1");
  }
  return params;
}

std::string AllreduceRun::RandomFailpoint() {
  static constexpr const char* kOften[] = {
      "worker.step",     "worker.forward",  "worker.backward",
      "worker.reduce",   "worker.reduce.0", "worker.reduce.1",
      "worker.apply",    "worker.evaluate", "checkpoint.write",
      "checkpoint.fsync"};
  static constexpr const char* kSeldom[] = {
      "worker.enter_world", "world.offer",       "world.connect", "level.give",
      "level.take",         "checkpoint.rename", "stream.give",   "stream.take",
      "stream.watch",       "worker.train_end",  "worker.stop"};
  const bool often = Chance(50);
  const char* name = often ? OneOf(kOften) : OneOf(kSeldom);
  return absl::StrCat(Random(0, 6), ":", name, Chance(15) ? "=stop@" : "=kill@",
                      often ? Random(1, 120) : Random(1, 6));
}

void AllreduceRun::Act(Job& job) {
  const int64_t dice = Random(1, 100);
  if (dice <= 40) {
    Hit("", 1, SIGKILL, tally_.kills);
  } else if (dice <= 50) {
    Hit("", 2, SIGKILL, tally_.kills);
  } else if (dice <= 55) {
    Hit("", CountRunning(""), SIGKILL, tally_.kills);
  } else if (dice <= 70) {
    Hit("", 1, SIGTERM, tally_.terms);
  } else if (dice <= 80) {
    Hit("", 1, SIGSTOP, tally_.stops);
  } else if (dice <= 88) {
    HitMaster(job);
  } else {
    ScaleTo(job, "num_workers", Random(1, 5));
  }
}

std::unique_ptr<Job> AllreduceRun::StartRandomJob() {
  const int64_t workers = Random(1, 4);
  const Flags flags = RandomFlags();
  const std::string params = RandomParams();
  settings_ = absl::StrCat(workers, " workers at first, ",
                           absl::StrJoin(flags.begin() + 3, flags.end(), " "),
                           " ", params);
  return StartJob(workers, flags, params);
}

std::string AllreduceRun::Examine(Job& job) {
  const testing::AssertionResult ledger = ChaosLedgerIsExact(job, kManyEpochs);
  const testing::AssertionResult models = ModelsAreEqual(job);
  if (!ledger) tally_.ledger_violations = 1;
  if (!models) tally_.model_mismatches = 1;
  return absl::StrCat(ledger.message(), models.message());
}

}  // namespace

std::unique_ptr<ChaosRun> MakeAllreduceRun(int64_t seed) {
  return std::make_unique<AllreduceRun>(seed);
}

}  // namespace elasticdl::test
