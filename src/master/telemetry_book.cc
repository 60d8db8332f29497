#include "telemetry_book.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace elasticdl::master {
namespace {

using trace::Kind;

// Less than this above the median is noise.
constexpr double kClearlySlower = 1.1;
// A pod that is quiet for so long is gone, or has nothing to tell.
constexpr absl::Duration kForgotten = absl::Minutes(10);

// From outside: a message may hold any number.
double Positive(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

void AddTo(trace::DurationCounts& sums, const v1::DurationCounts& counts) {
  const size_t size =
      std::min(sums.counts.size(), static_cast<size_t>(counts.counts_size()));
  for (size_t i = 0; i < size; ++i) {
    sums.counts[i] += std::max<int64_t>(0, counts.counts(static_cast<int>(i)));
  }
  sums.seconds += Positive(counts.seconds());
}

}  // namespace

void TelemetryBook::Add(absl::Time now, Key key,
                        const v1::Telemetry& telemetry) {
  ForgetSilent(now);
  Pod& pod = pods_[key];
  PodUsage& usage = pod.usage;
  const double seconds = Positive(telemetry.seconds());
  const auto rate = [&](double amount) {
    return seconds > 0 ? Positive(amount) / seconds : 0;
  };
  pod.heard = now;
  usage.memory_bytes = telemetry.memory_bytes();
  usage.cpu_cores = rate(telemetry.cpu_seconds());
  usage.cpu_seconds += Positive(telemetry.cpu_seconds());
  usage.records_per_s = rate(static_cast<double>(telemetry.records()));
  usage.rows = telemetry.rows();
  usage.model_bytes = telemetry.model_bytes();
  usage.pulls_per_s =
      rate(static_cast<double>(telemetry.pulls() - usage.pulls));
  usage.pushes_per_s =
      rate(static_cast<double>(telemetry.pushes() - usage.pushes));
  usage.pulls = telemetry.pulls();
  usage.pushes = telemetry.pushes();

  pod.steps = std::max<int64_t>(0, telemetry.steps());
  pod.phases = {};
  double step = 0;
  for (size_t i = 0; i < pod.phases.size(); ++i) {
    if (i >= static_cast<size_t>(telemetry.phase_seconds_size())) break;
    pod.phases[i] = Positive(telemetry.phase_seconds(static_cast<int>(i)));
    totals_.phase_seconds[i] += pod.phases[i];
    if (IsStepKind(static_cast<Kind>(i))) step += pod.phases[i];
  }
  const double communication =
      pod.phases[static_cast<size_t>(Kind::kCommunication)];
  const auto steps = static_cast<double>(pod.steps);
  usage.step_seconds = pod.steps > 0 ? step / steps : 0;
  usage.own_seconds = pod.steps > 0 ? (step - communication) / steps : 0;
  AddTo(totals_.steps, telemetry.step_durations());
  AddTo(totals_.pulls, telemetry.pull_durations());
  AddTo(totals_.pushes, telemetry.push_durations());
}

void TelemetryBook::ForgetSilent(absl::Time now) {
  if (now < next_forget_) return;
  next_forget_ = now + kForgotten;
  for (auto pod = pods_.begin(); pod != pods_.end();) {
    pod = now - pod->second.heard > kForgotten ? pods_.erase(pod) : ++pod;
  }
}

const PodUsage* TelemetryBook::Find(Key key) const {
  const auto found = pods_.find(key);
  return found == pods_.end() ? nullptr : &found->second.usage;
}

std::optional<StepBreakdown> TelemetryBook::Breakdown(absl::Time now) const {
  StepBreakdown sum;
  for (const auto& [key, pod] : pods_) {
    if (pod.steps == 0 || now - pod.heard > kFresh) continue;
    sum.steps += pod.steps;
    for (size_t i = 0; i < pod.phases.size(); ++i) {
      if (IsStepKind(static_cast<Kind>(i))) sum.seconds[i] += pod.phases[i];
    }
  }
  if (sum.steps == 0) return std::nullopt;
  for (double& seconds : sum.seconds) {
    seconds /= static_cast<double>(sum.steps);
    sum.total += seconds;
  }
  return sum;
}

std::optional<StepBreakdown> TelemetryBook::WholeJob() const {
  StepBreakdown mean;
  mean.steps = totals_.steps.total();
  if (mean.steps == 0) return std::nullopt;
  for (size_t i = 0; i < mean.seconds.size(); ++i) {
    if (!IsStepKind(static_cast<Kind>(i))) continue;
    mean.seconds[i] =
        totals_.phase_seconds[i] / static_cast<double>(mean.steps);
    mean.total += mean.seconds[i];
  }
  return mean;
}

std::optional<Slowest> TelemetryBook::SlowestWorker(absl::Time now) const {
  std::vector<std::pair<double, int64_t>> own;
  for (const auto& [key, pod] : pods_) {
    if (pod.steps == 0 || now - pod.heard > kFresh) continue;
    own.emplace_back(pod.usage.own_seconds, key.second);
  }
  if (own.size() < 2) return std::nullopt;
  std::sort(own.begin(), own.end());
  Slowest slowest;
  slowest.worker_id = own.back().second;
  slowest.own_seconds = own.back().first;
  // The lower one of two: that of the others.
  slowest.median_seconds = own[(own.size() - 1) / 2].first;
  if (slowest.own_seconds < kClearlySlower * slowest.median_seconds) {
    return std::nullopt;
  }
  return slowest;
}

}  // namespace elasticdl::master
