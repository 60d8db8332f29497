#include "elasticdl/page/history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/text.h"
#include "history_event.h"
#include "model_json.h"

namespace elasticdl::page {
namespace {

using Json = nlohmann::ordered_json;

// More members than this are only counted in the list of events.
constexpr size_t kMaxListed = 32;

// Cuts texts and what there may be many of.
void Shorten(Json& line) {
  for (auto& [key, value] : line.items()) {
    if (value.is_string()) value = Cut(value.get<std::string>());
  }
  const auto members = line.find("members");
  if (members != line.end() && members->size() > kMaxListed) {
    *members = members->size();
  }
  const auto metrics = line.find("metrics");
  if (metrics == line.end() || !metrics->is_object()) return;
  Json some = Json::object();
  for (const auto& [name, value] : metrics->items()) {
    if (some.size() >= History::kMaxMetrics) break;
    some[Cut(name)] = value;
  }
  *metrics = std::move(some);
}

}  // namespace

const char* LaneStateName(LaneState state) {
  switch (state) {
    case LaneState::kStarting:
      return "starting";
    case LaneState::kJoining:
      return "joining";
    case LaneState::kTraining:
      return "training";
    case LaneState::kWorking:
      return "working";
    case LaneState::kServing:
      return "serving";
    case LaneState::kEvaluating:
      return "evaluating";
    case LaneState::kSaving:
      return "saving";
    case LaneState::kSilent:
      return "silent";
  }
  return "";
}

absl::Status History::Add(absl::string_view line) {
  Event event;
  event.json = ParseOrderedJson(line);
  if (!event.json.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  event.name = event.Text("event");
  const std::optional<double> time = event.Real("time");
  if (event.name.empty() || !time.has_value()) {
    return absl::InvalidArgumentError(
        "no event: \"time\" or \"event\" missing");
  }
  if (*time < 0 || *time > kLastTime) {
    return absl::InvalidArgumentError("\"time\" is out of range");
  }
  // A clock that was set back must not make lanes that end before they begin,
  // nor stop the time until it has caught up.
  if (*time + skew_ < summary_.last - 1) skew_ = summary_.last - *time;
  event.time = std::max(*time + skew_, summary_.last);
  event.json["time"] = event.time;
  summary_.last = event.time;
  if (summary_.begin == 0) summary_.begin = event.time;
  ++cursor_;
  Apply(event);
  // Curves and lanes show these.
  const bool shown = event.name == "progress" || event.name == "evaluating" ||
                     event.name == "saving";
  if (!shown) Keep(event);
  Thin();
  return absl::OkStatus();
}

void History::Apply(const Event& event) {
  const std::string& name = event.name;
  if (name == "progress") return ApplyProgress(event);
  if (name == "world") return ApplyWorld(event);
  if (name == "checkpoint") return ApplyCheckpoint(event);
  if (name == "evaluation") return ApplyEvaluation(event);
  if (name == "evaluating" || name == "saving") return ApplyActivity(event);
  if (name == "silent" || name == "heard") return ApplySilence(event);
  if (name == "job_start" || name == "job_end") return ApplyJob(event);
  if (name == "model") {
    model_ = ModelJson(event.json);
    model_changed_ = cursor_;
    return;
  }
  if (name == "worker_ready" || name == "worker_lost") {
    return ApplyWorker(event);
  }
  if (name == "pod_created" || name == "pod_started" || name == "pod_ended") {
    return ApplyPod(event);
  }
  if (name == "master_restarted") {
    return AddMark(event,
                   absl::StrCat("the master was killed (signal ",
                                event.Whole("signal"), ") and started again"));
  }
  if (name == "scaled") {
    summary_.target_workers = event.Whole("to");
    return AddMark(event,
                   absl::StrCat("scaled from ", event.Whole("from"), " to ",
                                Count(event.Whole("to"), "worker")));
  }
  if (name == "ps_scaling") {
    return AddMark(event, absl::StrCat("from ", event.Whole("from"), " to ",
                                       Count(event.Whole("to"), "server"),
                                       ": moves begin"));
  }
  if (name == "ps_scaled") {
    return AddMark(event,
                   absl::StrCat("the model is on ",
                                Count(event.Whole("servers"), "server")));
  }
  if (name == "ps_takeover" || name == "ps_backup_lost") {
    const std::string server = absl::StrCat("server ", event.Whole("server"));
    const std::string part = absl::StrCat("part ", event.Whole("part"));
    return AddMark(
        event,
        name == "ps_takeover"
            ? absl::StrCat(server, " has taken over ", part)
            : absl::StrCat(server, " continues without a backup of ", part));
  }
  if (name == "task_quarantined") {
    return AddMark(
        event, Cut(absl::StrCat("records ", event.Whole("begin"), " to ",
                                event.Whole("end"), " of ", event.Text("shard"),
                                " set aside: ", event.Text("reason"))));
  }
}

void History::ApplyWorld(const Event& event) {
  WorldMark world;
  world.id = next_id_++;
  world.time = event.time;
  world.generation = event.Whole("generation");
  world.cause = event.Text("cause");
  world.pause_ms = std::max(0.0, event.Number("pause_ms"));
  world.total_pause_ms = world.pause_ms;
  world.changed = cursor_;
  summary_.generation = world.generation;
  ++totals_.worlds;
  totals_.pause_ms += world.pause_ms;
  totals_.longest_pause_ms = std::max(totals_.longest_pause_ms, world.pause_ms);
  const auto members = event.json.find("members");
  if (members != event.json.end() && members->is_array()) {
    world.size = static_cast<int64_t>(members->size());
    for (const Json& member : *members) {
      if (!member.is_number_integer()) continue;
      Enter({false, member.get<int64_t>()}, event.time, LaneState::kTraining,
            "");
    }
  }
  worlds_.push_back(std::move(world));
}

void History::ApplyProgress(const Event& event) {
  Summary& now = summary_;
  now.step = event.Whole("step");
  now.epoch = event.Whole("epoch");
  now.num_epochs = event.Whole("num_epochs");
  now.records_done = event.Whole("records_done");
  now.records_total = event.Whole("records_total");
  now.records_in_flight = event.Whole("records_in_flight");
  now.records_returned = event.Whole("records_returned");
  now.records_set_aside = event.Whole("records_set_aside");
  now.records_per_s = event.Number("records_per_s");
  now.loss = event.Real("loss");
  now.learning_rate = event.Real("learning_rate");
  now.workers = event.Whole("workers");
  now.target_workers = event.Whole("target_workers");
  if (const auto time = event.json.find("step_time");
      time != event.json.end() && time->is_object()) {
    now.step_time.clear();
    for (const auto& [name, value] : time->items()) {
      if (!value.is_number() || now.step_time.size() >= kMaxMetrics) continue;
      now.step_time[Cut(name)] = value.get<double>();
    }
  }
  if (!points_.empty() && event.time < points_.back().time + spacing_) return;
  points_.push_back({event.time, now.step, now.loss, now.learning_rate,
                     RateSincePoint(event.time), now.workers, cursor_,
                     now.records_done});
}

void History::ApplyCheckpoint(const Event& event) {
  checkpoints_.push_back({event.time, event.Whole("version"),
                          event.Number("ms"), event.Text("path"),
                          event.Text("error"), cursor_});
  if (checkpoints_.back().error.empty()) ++totals_.checkpoints;
  if (checkpoints_.size() > kMaxCheckpoints) checkpoints_.pop_front();
}

void History::ApplyEvaluation(const Event& event) {
  EvaluationMark mark;
  mark.time = event.time;
  mark.step = event.Whole("step");
  mark.ms = event.Number("ms");
  mark.changed = cursor_;
  ++totals_.evaluations;
  const auto metrics = event.json.find("metrics");
  if (metrics != event.json.end() && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      if (!value.is_number() || mark.metrics.size() >= kMaxMetrics) continue;
      mark.metrics[Cut(name)] = value.get<double>();
    }
  }
  evaluations_.push_back(std::move(mark));
}

void History::ApplyJob(const Event& event) {
  if (event.name == "job_start") {
    summary_.job = event.Text("job");
    summary_.command = event.Text("command");
    // A master that was started again goes on. What the one before it has said
    // last may be over.
    summary_.state.clear();
    summary_.end.reset();
    for (auto& [key, member] : members_) {
      member.evaluating = member.saving = member.silent = false;
      Show(key, event.time, "");
    }
    const auto flags = event.json.find("flags");
    if (flags == event.json.end() || !flags->is_array()) return;
    summary_.flags.clear();
    for (const Json& flag : *flags) {
      if (!flag.is_string() || summary_.flags.size() >= kMaxFlags) continue;
      summary_.flags.push_back(Cut(flag.get<std::string>(), kMaxLine));
    }
    return;
  }
  summary_.state = event.Text("state");
  summary_.reason = event.Text("reason");
  summary_.end = event.time;
  summary_.records_per_s = 0;
  summary_.workers = 0;
  const std::map<Key, Member> left = members_;
  for (const auto& [key, member] : left) {
    Leave(key, event.time, /*lost=*/false, "the job has ended");
  }
}

void History::AddMark(const Event& event, std::string text) {
  marks_.push_back({event.time, event.name, std::move(text), cursor_});
  if (marks_.size() > kMaxMarks) marks_.pop_front();
}

void History::Keep(const Event& event) {
  ++totals_.events;
  Json json = event.json;
  // The page shows these in a place of their own.
  json.erase("flags");
  json.erase("tensors");
  Shorten(json);
  std::string text = JsonText(json);
  if (text.size() > kMaxLine) {
    const Json brief = {{"time", event.time},
                        {"event", event.name},
                        {"reason", event.Text("reason")},
                        {"cut", true}};
    text = JsonText(brief);
  }
  events_.push_back({cursor_, std::move(text)});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

Changes History::Since(uint64_t cursor) const {
  Changes changes;
  changes.cursor = cursor_;
  changes.now = summary_.end.value_or(summary_.last);
  changes.skew = skew_;
  changes.all = cursor == 0 || cursor < thinned_at_ || cursor > cursor_;
  changes.resolution = resolution_;
  changes.totals = totals_;
  changes.summary = summary_;
  const auto copy = [&](const auto& from, auto& to) {
    for (const auto& item : from) {
      if (changes.all || item.changed > cursor) to.push_back(item);
    }
  };
  copy(spans_, changes.spans);
  copy(worlds_, changes.worlds);
  copy(points_, changes.points);
  copy(checkpoints_, changes.checkpoints);
  copy(evaluations_, changes.evaluations);
  copy(marks_, changes.marks);
  for (const EventLine& event : events_) {
    if (changes.all || event.id > cursor) changes.events.push_back(event);
  }
  if (changes.all || model_changed_ > cursor) changes.model = model_;
  return changes;
}

}  // namespace elasticdl::page
