#include "integration/chaos_run.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"

namespace elasticdl::test {
namespace {

// RelaunchRule allows for five in five minutes.
constexpr int64_t kMostMasters = 3;

}  // namespace

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part *
                                    static_cast<double>(values.size() - 1))];
}

void ChaosRun::Watch(Job& job, absl::Duration time) {
  const absl::Time until = absl::Now() + time;
  while (!ended_) {
    const auto event = job.NextEvent(until - absl::Now());
    if (!event.has_value()) return;
    const std::string& kind = event->at("event");
    if (kind == "pod_started") running_[event->at("pod")] = event->at("pid");
    if (kind == "pod_ended")
      running_.erase(event->at("pod").get<std::string>());
    if (kind == "job_end") ended_ = true;
  }
}

size_t ChaosRun::CountRunning(const std::string& part) const {
  return static_cast<size_t>(std::count_if(
      running_.begin(), running_.end(),
      [&](const auto& pod) { return absl::StrContains(pod.first, part); }));
}

void ChaosRun::Hit(const std::string& part, size_t count, int signal,
                   int64_t& counter) {
  std::vector<std::pair<std::string, pid_t>> victims;
  for (const auto& pod : running_) {
    if (absl::StrContains(pod.first, part)) victims.push_back(pod);
  }
  std::shuffle(victims.begin(), victims.end(), random_);
  victims.resize(std::min(count, victims.size()));
  for (const auto& [pod, pid] : victims) {
    story_.push_back(absl::StrCat("signal ", signal, " to ", pod));
    if (kill(pid, signal) == 0) ++counter;
  }
}

void ChaosRun::HitMaster(Job& job) {
  const std::vector<Json> starts = job.Events("job_start");
  if (starts.empty() || tally_.masters >= kMostMasters) return;
  // The number of one that was killed a moment ago is perhaps nobody's.
  const pid_t master = starts.back().at("pid");
  if (std::exchange(last_master_, master) == master) return;
  story_.push_back(absl::StrCat("signal 9 to master ", master));
  if (kill(master, SIGKILL) == 0) ++tally_.masters;
}

void ChaosRun::ScaleTo(Job& job, const std::string& flag, int64_t value) {
  story_.push_back(absl::StrCat("scale ", flag, " to ", value));
  const auto scale =
      Run("scale", {Program("elasticdl"), "scale", "--job_name=" + job.name(),
                    absl::StrCat("--", flag, "=", value)});
  if (scale->Wait() == 0) ++tally_.scalings;
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
  std::string complaint;
  if (code == 0) {
    complaint = Examine(job);
  } else {
    tally_.failed_jobs = 1;
    complaint = code.has_value() ? absl::StrCat("exit code ", *code)
                                 : std::string("it does not end");
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
  Walk();
  const std::unique_ptr<Job> job = StartRandomJob();
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
      "seed %d: %s, %d kills, %d masters, %d stops, %d terms, %d scalings, %d "
      "joins, %d worlds, %d cut-backs, longest pause %.0f ms [%s]\n",
      seed_, tally_.good() ? "good" : "BAD", tally_.kills, tally_.masters,
      tally_.stops, tally_.terms, tally_.scalings, tally_.joins, tally_.worlds,
      tally_.cut_backs, Percentile(tally_.recovery_ms, 1), settings_);
  std::cout.flush();
  return tally_;
}

}  // namespace elasticdl::test
