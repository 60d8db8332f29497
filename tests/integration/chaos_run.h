// One job of `make chaos`: random settings, random hits, an exact judgement.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "integration/chaos.h"

namespace elasticdl::test {

// What happened, and what was wrong.
struct Tally {
  int64_t jobs = 0;
  int64_t failed_jobs = 0;
  int64_t kills = 0;
  int64_t masters = 0;
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
    masters += other.masters;
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
  // Nothing was wrong.
  bool good() const {
    return failed_jobs + ledger_violations + model_mismatches == 0;
  }
};

double Percentile(std::vector<double> values, double part);

// Base of the jobs: when what happens. What is trained is the strategies'
// affair.
class ChaosRun : public ChaosTest {
 public:
  explicit ChaosRun(int64_t seed) : seed_(seed), random_(seed) { SetUp(); }
  ~ChaosRun() override { TearDown(); }
  void TestBody() override {}

  Tally RunJob();

 protected:
  static constexpr absl::Duration kLongestPause = absl::Minutes(2);

  // Starts a job with random settings.
  virtual std::unique_ptr<Job> StartRandomJob() = 0;
  // What is wrong with a job that succeeded, for people; counts it.
  virtual std::string Examine(Job& job) = 0;
  // Does one thing to it.
  virtual void Act(Job& job) = 0;

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(int percent) { return Random(1, 100) <= percent; }
  template <size_t n>
  const char* OneOf(const char* const (&names)[n]) {
    return names[Random(0, static_cast<int64_t>(n) - 1)];
  }
  // Processes that run and whose pod's name has `part`.
  size_t CountRunning(const std::string& part) const;
  // Signals to up to `count` of them.
  void Hit(const std::string& part, size_t count, int signal, int64_t& counter);
  // Kills the master; the client starts the next one. Not so often that it
  // would give the job up.
  void HitMaster(Job& job);
  // `elasticdl scale --<flag>=<value>`. Too late when the job ends at this
  // moment.
  void ScaleTo(Job& job, const std::string& flag, int64_t value);
  int64_t seed() const { return seed_; }

  Tally tally_;
  // The flags that were drawn, for the line of this job.
  std::string settings_;

 private:
  // Reads events for so long.
  void Watch(Job& job, absl::Duration time);
  std::optional<int> WaitWhileItTrains(Job& job);
  void Judge(Job& job);

  const int64_t seed_;
  std::mt19937_64 random_;
  // Pids by pod.
  std::map<std::string, pid_t> running_;
  bool ended_ = false;
  // That was killed last.
  pid_t last_master_ = 0;
  std::vector<std::string> story_;
};

std::unique_ptr<ChaosRun> MakeAllreduceRun(int64_t seed);
std::unique_ptr<ChaosRun> MakePsRun(int64_t seed);

}  // namespace elasticdl::test
