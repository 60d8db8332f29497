// Random chaos for as long as you like (`make chaos`):
//
//   chaos [--minutes=M] [--jobs=N] [--seed=S]
//
// Trains one job after the other with random settings; kills, stops and ends
// its workers and changes their number at random moments. Each job must succeed
// with an exact ledger and one model on all members. Prints a line per job and
// a summary; exit code 1 when anything was wrong. Job number i has the seed
// S + i: --jobs=1 --seed=... repeats it, as far as the clock allows. What a job
// that failed had said is left in chaos-<seed>.log.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

struct Settings {
  double minutes = 10;
  int64_t jobs = 0;  // 0: as many as there is time for.
  int64_t seed = 0;
};
Settings settings;

struct Tally {
  int64_t jobs = 0;
  int64_t failed_jobs = 0;
  int64_t kills = 0;
  int64_t stops = 0;
  int64_t terms = 0;
  int64_t scalings = 0;
  int64_t joins = 0;
  int64_t worlds = 0;
  int64_t cut_backs = 0;
  int64_t ledger_violations = 0;
  int64_t model_mismatches = 0;
  std::vector<double> recovery_ms;

  void Add(const Tally& other) {
    jobs += other.jobs;
    failed_jobs += other.failed_jobs;
    kills += other.kills;
    stops += other.stops;
    terms += other.terms;
    scalings += other.scalings;
    joins += other.joins;
    worlds += other.worlds;
    cut_backs += other.cut_backs;
    ledger_violations += other.ledger_violations;
    model_mismatches += other.model_mismatches;
    recovery_ms.insert(recovery_ms.end(), other.recovery_ms.begin(),
                       other.recovery_ms.end());
  }
  bool good() const {
    return failed_jobs + ledger_violations + model_mismatches == 0;
  }
};

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part *
                                    static_cast<double>(values.size() - 1))];
}

// One job.
class ChaosRun : public ChaosTest {
 public:
  explicit ChaosRun(int64_t seed) : seed_(seed), random_(seed) { SetUp(); }
  ~ChaosRun() override { TearDown(); }
  void TestBody() override {}

  Tally RunJob();

 private:
  // Enough that a job at a walk outlives its chaos.
  static constexpr int64_t kManyEpochs = 30;
  static constexpr absl::Duration kLongestPause = absl::Minutes(2);

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(int percent) { return Random(1, 100) <= percent; }
  Flags RandomFlags();
  std::string RandomParams();
  std::string RandomFailpoint();
  // Reads events for so long.
  void Watch(Job& job, absl::Duration time);
  void Act(Job& job);
  void Hit(Job& job, size_t count, int signal, int64_t* counter);
  std::optional<int> WaitWhileItTrains(Job& job);
  void Judge(Job& job);

  const int64_t seed_;
  std::mt19937_64 random_;
  Tally tally_;
  // Workers whose process runs, with their pids.
  std::map<int64_t, pid_t> running_;
  bool ended_ = false;
  std::vector<std::string> story_;
};

Flags ChaosRun::RandomFlags() {
  Flags flags = {absl::StrCat("--num_epochs=", kManyEpochs),
                 "--worker_timeout=2", "--worker_start_timeout=30",
                 absl::StrCat("--seed=", seed_ % 1000)};
  if (Chance(50)) {
    flags.push_back("--checkpoint_dir=" + Path("checkpoints"));
    flags.push_back(absl::StrCat("--checkpoint_steps=", Random(5, 60)));
  }
  if (Chance(40)) {
    flags.push_back("--validation_data=" + test_csv());
    flags.push_back(absl::StrCat("--evaluation_steps=", Random(20, 200)));
  }
  if (Chance(30)) flags.push_back("--collective=gloo");
  if (Chance(20)) flags.push_back("--grad_compression=bf16");
  if (Chance(20)) flags.push_back("--global_batch_size=48");
  if (Chance(50)) {
    flags.push_back("--failpoints=" + RandomFailpoint() +
                    (Chance(30) ? ";" + RandomFailpoint() : ""));
  }
  return flags;
}

std::string ChaosRun::RandomParams() {
  std::string params;
  if (Chance(40)) params = "ballast=300000";
  if (Chance(30)) {
    absl::StrAppend(&params, params.empty() ? "" : ";", "batch_norm=1");
  }
  return params;
}

std::string ChaosRun::RandomFailpoint() {
  static constexpr const char* kOften[] = {
      "worker.step",     "worker.forward",  "worker.backward",
      "worker.reduce",   "worker.reduce.0", "worker.reduce.1",
      "worker.apply",    "worker.evaluate", "checkpoint.write",
      "checkpoint.fsync"};
  static constexpr const char* kSeldom[] = {
      "worker.enter_world", "world.offer", "world.connect",
      "level.give",         "level.take",  "checkpoint.rename",
      "worker.train_end",   "worker.stop"};
  const bool often = Chance(50);
  const char* name = often ? kOften[Random(0, std::size(kOften) - 1)]
                           : kSeldom[Random(0, std::size(kSeldom) - 1)];
  return absl::StrCat(Random(0, 6), ":", name, Chance(15) ? "=stop@" : "=kill@",
                      often ? Random(1, 120) : Random(1, 6));
}

void ChaosRun::Watch(Job& job, absl::Duration time) {
  const absl::Time until = absl::Now() + time;
  while (!ended_) {
    const auto event = job.NextEvent(until - absl::Now());
    if (!event.has_value()) return;
    const std::string& kind = event->at("event");
    if (kind == "pod_started") running_[event->at("id")] = event->at("pid");
    if (kind == "pod_ended") running_.erase(event->at("id").get<int64_t>());
    if (kind == "job_end") ended_ = true;
  }
}

void ChaosRun::Hit(Job& job, size_t count, int signal, int64_t* counter) {
  std::vector<std::pair<int64_t, pid_t>> victims(running_.begin(),
                                                 running_.end());
  std::shuffle(victims.begin(), victims.end(), random_);
  victims.resize(std::min(count, victims.size()));
  for (const auto& [id, pid] : victims) {
    story_.push_back(absl::StrCat("signal ", signal, " to ", id));
    if (kill(pid, signal) == 0) ++*counter;
  }
}

void ChaosRun::Act(Job& job) {
  const int64_t dice = Random(1, 100);
  if (dice <= 40) {
    Hit(job, 1, SIGKILL, &tally_.kills);
  } else if (dice <= 50) {
    Hit(job, 2, SIGKILL, &tally_.kills);
  } else if (dice <= 55) {
    Hit(job, running_.size(), SIGKILL, &tally_.kills);
  } else if (dice <= 70) {
    Hit(job, 1, SIGTERM, &tally_.terms);
  } else if (dice <= 80) {
    Hit(job, 1, SIGSTOP, &tally_.stops);
  } else {
    const int64_t workers = Random(1, 5);
    story_.push_back(absl::StrCat("scale to ", workers));
    // Too late when the job ends at this moment.
    const auto scale =
        Run("scale", {Program("elasticdl"), "scale", "--job_name=" + job.name(),
                      absl::StrCat("--num_workers=", workers)});
    if (scale->Wait() == 0) ++tally_.scalings;
  }
}

// Nothing when it stands still: how long a job takes is the machine's affair.
std::optional<int> ChaosRun::WaitWhileItTrains(Job& job) {
  std::optional<int> code;
  size_t known = 0;
  while (!(code = job.process().Wait(kLongestPause)).has_value()) {
    const size_t committed = ReadFile(job.audit()).value_or("").size();
    if (committed == known) break;
    known = committed;
  }
  return code;
}

void ChaosRun::Judge(Job& job) {
  const std::optional<int> code = WaitWhileItTrains(job);
  const bool done = code == 0;
  std::string complaint;
  if (!done) {
    tally_.failed_jobs = 1;
    complaint = code.has_value() ? absl::StrCat("exit code ", *code)
                                 : std::string("it does not end");
  } else {
    const testing::AssertionResult ledger =
        ChaosLedgerIsExact(job, kManyEpochs);
    const testing::AssertionResult models = ModelsAreEqual(job);
    if (!ledger) tally_.ledger_violations = 1;
    if (!models) tally_.model_mismatches = 1;
    complaint = absl::StrCat(ledger.message(), models.message());
  }
  for (const Json& event : job.Events()) {
    if (event.at("event") == "worker_ready") ++tally_.joins;
    if (event.at("event") != "world") continue;
    ++tally_.worlds;
    if (absl::StrContains(event.at("cause").get<std::string>(), " lost")) {
      tally_.recovery_ms.push_back(event.at("pause_ms"));
    }
  }
  tally_.cut_backs = static_cast<int64_t>(CutBacks(job).size());
  if (tally_.good()) return;
  const std::string file = absl::StrCat("chaos-", seed_, ".log");
  std::ofstream(file) << complaint << "\nchaos: " << absl::StrJoin(story_, ", ")
                      << "\n"
                      << job.Output();
  std::cout << "seed " << seed_ << ": " << complaint.substr(0, 300) << "; see "
            << file << "\n";
}

Tally ChaosRun::RunJob() {
  const int64_t workers = Random(1, 4);
  const Flags flags = RandomFlags();
  const std::string params = RandomParams();
  Walk();
  const auto job = StartJob(workers, flags, params);
  const int64_t actions = Random(2, 8);
  Watch(*job, absl::Milliseconds(Random(500, 4000)));
  for (int64_t i = 0; i < actions && !ended_; ++i) {
    Act(*job);
    // Often at once, sometimes when a replacement has come.
    Watch(*job,
          absl::Milliseconds(Chance(30) ? Random(0, 50) : Random(50, 3000)));
  }
  Go();
  Judge(*job);
  tally_.jobs = 1;
  std::cout << absl::StrFormat(
      "seed %d: %s, %d workers at first, %d kills, %d stops, %d terms, %d "
      "scalings, %d joins, %d worlds, %d cut-backs, longest pause %.0f ms [%s "
      "%s]\n",
      seed_, tally_.good() ? "good" : "BAD", workers, tally_.kills,
      tally_.stops, tally_.terms, tally_.scalings, tally_.joins, tally_.worlds,
      tally_.cut_backs, Percentile(tally_.recovery_ms, 1),
      absl::StrJoin(flags.begin() + 3, flags.end(), " "), params);
  std::cout.flush();
  return tally_;
}

TEST(Chaos, RandomSchedules) {
  std::cout << "seed " << settings.seed << "\n";
  const absl::Time end = absl::Now() + absl::Minutes(settings.minutes);
  Tally all;
  for (int64_t i = 0; settings.jobs > 0 ? i < settings.jobs : absl::Now() < end;
       ++i) {
    all.Add(ChaosRun(settings.seed + i).RunJob());
  }
  std::cout << absl::StrFormat(
      "%d jobs, %d failed; %d kills, %d stops, %d terms, %d scalings; %d "
      "joins, %d worlds, %d cut-backs\n"
      "recovery: p50 %.1f ms, p99 %.1f ms (%d times)\n"
      "ledger violations: %d\n"
      "model mismatches: %d\n",
      all.jobs, all.failed_jobs, all.kills, all.stops, all.terms, all.scalings,
      all.joins, all.worlds, all.cut_backs, Percentile(all.recovery_ms, 0.5),
      Percentile(all.recovery_ms, 0.99), all.recovery_ms.size(),
      all.ledger_violations, all.model_mismatches);
  EXPECT_TRUE(all.good());
}

bool ParseSettings(int argc, char** argv) {
  settings.seed = absl::ToUnixSeconds(absl::Now());
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--minutes=")) {
      if (!absl::SimpleAtod(text, &settings.minutes)) return false;
    } else if (absl::ConsumePrefix(&text, "--jobs=")) {
      if (!absl::SimpleAtoi(text, &settings.jobs)) return false;
    } else if (absl::ConsumePrefix(&text, "--seed=")) {
      if (!text.empty() && !absl::SimpleAtoi(text, &settings.seed))
        return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace elasticdl::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!elasticdl::test::ParseSettings(argc, argv)) {
    std::cerr << "usage: chaos [--minutes=M] [--jobs=N] [--seed=S]\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
