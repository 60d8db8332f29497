#include "elasticdl/trace/timeline_summary.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/trace/kind.h"

namespace elasticdl::trace {
namespace {

using Json = nlohmann::json;

// A worker that is this many steps behind the newest is not in the same world:
// so much is kept of who came when.
constexpr size_t kOpenSteps = 4096;

class Reader {
 public:
  absl::Status Add(absl::string_view line);
  TimelineSummary Finish();

 private:
  absl::Status AddName(const Json& event);
  absl::Status AddSpan(const Json& event);
  void Arrive(int64_t step, int64_t worker, double time);
  void Close(std::map<int64_t, double> arrivals);

  TimelineSummary summary_;
  std::map<int64_t, int64_t> worker_of_pid_;
  // By worker: the step of its last forward pass.
  std::map<int64_t, int64_t> last_step_;
  // By step: when each worker began to wait for the sum.
  std::map<int64_t, std::map<int64_t, double>> open_;
};

absl::Status Reader::Add(absl::string_view line) {
  const Json event = ParseJson(line);
  if (!event.is_object() || !event.contains("ph") || !event["ph"].is_string()) {
    return absl::InvalidArgumentError("not a trace event");
  }
  ++summary_.events;
  const std::string kind = event["ph"];
  if (kind == "M") return AddName(event);
  if (kind == "X") return AddSpan(event);
  if (kind == "i" && event.value("name", "") == "spans dropped" &&
      event.contains("args") && event["args"].is_object()) {
    const auto found = worker_of_pid_.find(event.value("pid", int64_t{0}));
    if (found != worker_of_pid_.end()) {
      summary_.workers[found->second].dropped +=
          event["args"].value("spans", int64_t{0});
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::AddName(const Json& event) {
  if (!event.contains("args") || !event["args"].is_object()) {
    return absl::InvalidArgumentError("a name without args");
  }
  const std::string what = event.value("name", "");
  const std::string name = event["args"].value("name", "");
  if (what == "process_labels") summary_.complete = name == "complete";
  absl::string_view id = name;
  int64_t worker = 0;
  if (what == "process_name" && absl::ConsumePrefix(&id, "worker ") &&
      absl::SimpleAtoi(id, &worker)) {
    worker_of_pid_[event.value("pid", int64_t{0})] = worker;
    summary_.workers[worker];
  }
  return absl::OkStatus();
}

absl::Status Reader::AddSpan(const Json& event) {
  const auto found = worker_of_pid_.find(event.value("pid", int64_t{0}));
  if (found == worker_of_pid_.end()) {
    return absl::InvalidArgumentError("a span of a worker without a name");
  }
  const double begin = event.value("ts", 0.0) * 1e-6;
  const double duration = event.value("dur", 0.0) * 1e-6;
  const std::string name = event.value("name", "");
  TimelineSummary::Worker& worker = summary_.workers[found->second];
  if (worker.end == 0) worker.begin = begin;
  worker.begin = std::min(worker.begin, begin);
  worker.end = std::max(worker.end, begin + duration);
  const bool training = event.value("tid", int64_t{0}) == 0;
  (training ? worker.seconds : worker.beside)[name] += duration;
  if (!training) return absl::OkStatus();
  if (!event.contains("args") || !event["args"].is_object()) {
    return absl::OkStatus();
  }
  const int64_t step = event["args"].value("step", int64_t{0});
  // A step may have several minibatches.
  if (name == KindName(Kind::kForward)) {
    int64_t& last = last_step_[found->second];
    if (step != last) ++worker.steps;
    last = step;
  }
  if (name == KindName(Kind::kCommunication)) {
    Arrive(step, found->second, begin);
  }
  return absl::OkStatus();
}

void Reader::Arrive(int64_t step, int64_t worker, double time) {
  // A step that is done again after a broken world: the last time counts.
  open_[step][worker] = time;
  if (open_.size() <= kOpenSteps) return;
  Close(open_.begin()->second);
  open_.erase(open_.begin());
}

void Reader::Close(std::map<int64_t, double> arrivals) {
  // With parameter servers nobody waits for another worker.
  for (auto it = arrivals.begin(); it != arrivals.end();) {
    const auto& beside = summary_.workers[it->first].beside;
    const bool reduces = beside.count(std::string(KindName(Kind::kAllReduce)));
    it = reduces ? std::next(it) : arrivals.erase(it);
  }
  if (arrivals.size() < 2) return;
  const auto earlier = [](const auto& a, const auto& b) {
    return a.second < b.second;
  };
  const auto last = std::max_element(arrivals.begin(), arrivals.end(), earlier);
  const auto first =
      std::min_element(arrivals.begin(), arrivals.end(), earlier);
  TimelineSummary::Worker& slow = summary_.workers[last->first];
  ++slow.last;
  for (const auto& [worker, time] : arrivals) {
    slow.waited_for += last->second - time;
  }
  ++summary_.shared_steps;
  summary_.spread_seconds += last->second - first->second;
}

TimelineSummary Reader::Finish() {
  for (const auto& [step, arrivals] : open_) Close(arrivals);
  return std::move(summary_);
}

void Describe(int64_t id, const TimelineSummary::Worker& worker,
              std::string& text) {
  const double whole = worker.end - worker.begin;
  absl::StrAppendFormat(&text, "worker %d: %s in %.1f s\n", id,
                        Count(worker.steps, "step"), whole);
  absl::StrAppendFormat(&text, "  %-18s %9s  %7s", "kind of work", "seconds",
                        "share");
  text += worker.steps > 0 ? "    ms/step\n" : "\n";
  const auto line = [&](const std::string& name, double seconds) {
    absl::StrAppendFormat(&text, "  %-18s %9.3f  %5.1f %%", name, seconds,
                          whole > 0 ? 100 * seconds / whole : 0);
    if (worker.steps > 0) {
      absl::StrAppendFormat(&text, "  %9.3f",
                            1e3 * seconds / static_cast<double>(worker.steps));
    }
    text += '\n';
  };
  double known = 0;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, seconds] : worker.seconds) {
    sorted.emplace_back(seconds, name);
    known += seconds;
  }
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto& [seconds, name] : sorted) line(name, seconds);
  line("other", std::max(0.0, whole - known));
  for (const auto& [name, seconds] : worker.beside) {
    line(absl::StrCat("(", name, ")"), seconds);
  }
  if (worker.dropped > 0) {
    absl::StrAppend(&text, "  ", Count(worker.dropped, "span"),
                    " did not fit into its memory and are missing\n");
  }
}

}  // namespace

absl::StatusOr<TimelineSummary> SummarizeTimeline(std::istream& in,
                                                  const std::string& name) {
  Reader reader;
  std::string line;
  int64_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    absl::string_view text = absl::StripAsciiWhitespace(line);
    if (number == 1 && !absl::StartsWith(text, "[")) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":1: not a timeline (--timeline of a job)"));
    }
    absl::ConsumePrefix(&text, "[");
    absl::ConsumeSuffix(&text, ",");
    if (text.empty() || text == "]") continue;
    const absl::Status added = reader.Add(text);
    // A job that was killed may leave a part of a line at the end.
    if (!added.ok() && in.peek() == std::char_traits<char>::eof()) break;
    ELASTICDL_RETURN_IF_ERROR(Annotate(added, absl::StrCat(name, ":", number)));
  }
  if (number == 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": empty"));
  }
  return reader.Finish();
}

std::string DescribeTimeline(const TimelineSummary& summary) {
  std::string text;
  for (const auto& [id, worker] : summary.workers) Describe(id, worker, text);
  if (summary.workers.empty()) text = "no spans of workers\n";
  const TimelineSummary::Worker* slowest = nullptr;
  int64_t slowest_id = 0;
  for (const auto& [id, worker] : summary.workers) {
    if (slowest == nullptr || worker.waited_for > slowest->waited_for) {
      slowest = &worker;
      slowest_id = id;
    }
  }
  if (summary.shared_steps > 0 && slowest != nullptr) {
    absl::StrAppendFormat(
        &text,
        "steps with several workers: %d; the last arrived %.3f ms after the "
        "first on average\n",
        summary.shared_steps,
        1e3 * summary.spread_seconds /
            static_cast<double>(summary.shared_steps));
    for (const auto& [id, worker] : summary.workers) {
      if (worker.last == 0) continue;
      absl::StrAppendFormat(
          &text, "  worker %d arrived last at %s; the others waited %.3f s\n",
          id, Count(worker.last, "step"), worker.waited_for);
    }
    absl::StrAppendFormat(&text, "the others waited longest for worker %d\n",
                          slowest_id);
  }
  if (!summary.complete) {
    text +=
        "the timeline is not complete: the job was killed or the file was "
        "full\n";
  }
  return text;
}

}  // namespace elasticdl::trace
