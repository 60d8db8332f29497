// Results as lines of JSON.
#include "elasticdl/experiment/results.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "result_json.h"

namespace elasticdl::experiment {
namespace {

using Json = nlohmann::ordered_json;

// Reads what may be anything. Thread-compatible.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  void Get(const char* key, std::string* value) const {
    if (Has(key) && json_[key].is_string()) *value = json_[key];
  }
  void Get(const char* key, bool* value) const {
    if (Has(key) && json_[key].is_boolean()) *value = json_[key];
  }
  template <typename Number>
  void Get(const char* key, Number* value) const {
    if (Has(key) && json_[key].is_number()) *value = json_[key];
  }
  void Get(const char* key, std::vector<double>* values) const {
    if (!Has(key) || !json_[key].is_array()) return;
    for (const Json& one : json_[key]) {
      if (one.is_number()) values->push_back(one);
    }
  }
  void Get(const char* key, Settings* values) const {
    if (!Has(key) || !json_[key].is_object()) return;
    for (const auto& [name, one] : json_[key].items()) {
      if (one.is_string()) (*values)[name] = one;
    }
  }
  void Get(const char* key, std::map<std::string, double>* values) const {
    if (!Has(key) || !json_[key].is_object()) return;
    for (const auto& [name, one] : json_[key].items()) {
      if (one.is_number()) (*values)[name] = one;
    }
  }
  Json Object(const char* key) const {
    return Has(key) ? json_[key] : Json::object();
  }

 private:
  bool Has(const char* key) const {
    return json_.is_object() && json_.contains(key);
  }
  const Json& json_;
};

Json MeasuredJson(const Measured& measured) {
  return {{"state", measured.state},
          {"startup", measured.startup},
          {"seconds", measured.seconds},
          {"records", measured.records},
          {"records_per_second", measured.records_per_second},
          {"elapsed", measured.elapsed},
          {"steps", measured.steps},
          {"kills", measured.kills},
          {"recovery_ms", measured.recovery_ms},
          {"loss_pause_ms", measured.loss_pause_ms},
          {"join_pause_ms", measured.join_pause_ms},
          {"save_ms", measured.save_ms},
          {"time_to_target", measured.time_to_target},
          {"last_metric", measured.last_metric},
          {"mean_workers", measured.mean_workers}};
}

Measured ParseMeasured(const Json& json) {
  Measured measured;
  const Fields fields(json);
  fields.Get("state", &measured.state);
  fields.Get("startup", &measured.startup);
  fields.Get("seconds", &measured.seconds);
  fields.Get("records", &measured.records);
  fields.Get("records_per_second", &measured.records_per_second);
  fields.Get("elapsed", &measured.elapsed);
  fields.Get("steps", &measured.steps);
  fields.Get("kills", &measured.kills);
  fields.Get("recovery_ms", &measured.recovery_ms);
  fields.Get("loss_pause_ms", &measured.loss_pause_ms);
  fields.Get("join_pause_ms", &measured.join_pause_ms);
  fields.Get("save_ms", &measured.save_ms);
  fields.Get("time_to_target", &measured.time_to_target);
  fields.Get("last_metric", &measured.last_metric);
  fields.Get("mean_workers", &measured.mean_workers);
  return measured;
}

Json SharedJson(const SharedMeasured& shared) {
  Json timeline = Json::array();
  for (const TimelinePoint& point : shared.timeline) {
    timeline.push_back({point.at, point.job, point.workers});
  }
  return {{"makespan", shared.makespan},
          {"waiting", shared.waiting},
          {"completion", shared.completion},
          {"utilisation", shared.utilisation},
          {"timeline", timeline}};
}

SharedMeasured ParseShared(const Json& json) {
  SharedMeasured shared;
  const Fields fields(json);
  fields.Get("makespan", &shared.makespan);
  fields.Get("waiting", &shared.waiting);
  fields.Get("completion", &shared.completion);
  fields.Get("utilisation", &shared.utilisation);
  for (const Json& one : fields.Object("timeline")) {
    if (one.is_array() && one.size() == 3 && one[0].is_number() &&
        one[1].is_string() && one[2].is_number()) {
      shared.timeline.push_back({one[0], one[1], one[2]});
    }
  }
  return shared;
}

}  // namespace

Json ResultJson(const RunResult& result) {
  Json json = {{"id", result.id},
               {"repeat", result.repeat},
               {"settings", result.settings},
               {"peer", result.peer},
               {"policy", result.policy},
               {"workers", result.workers},
               {"calm", result.calm},
               {"mtbf", result.mtbf},
               {"ok", result.ok},
               {"reason", result.reason},
               {"began", result.began},
               {"wall_seconds", result.wall_seconds},
               {"cpu_seconds", result.cpu_seconds},
               {"cores", result.cores},
               {"load", result.load},
               {"ledger", result.ledger},
               {"ledger_records", result.ledger_records}};
  if (result.on_cluster) {
    json["on_cluster"] = true;
    json["clock_offset"] = result.clock_offset;
  }
  if (result.policy.empty()) {
    json["measured"] = MeasuredJson(result.measured);
  } else {
    json["shared"] = SharedJson(result.shared);
  }
  return json;
}

double RunResult::CpuUtilisation() const {
  if (cpu_seconds < 0) return -1;
  const double available = wall_seconds * static_cast<double>(cores);
  return available > 0 ? cpu_seconds / available : 0;
}

std::string ResultLine(const RunResult& result) {
  return JsonText(ResultJson(result));
}

absl::StatusOr<RunResult> ParseResultLine(absl::string_view line) {
  const Json json = ParseOrderedJson(line);
  RunResult result;
  const Fields fields(json);
  fields.Get("id", &result.id);
  if (result.id.empty()) {
    return absl::InvalidArgumentError("this is not the result of a run");
  }
  fields.Get("repeat", &result.repeat);
  fields.Get("settings", &result.settings);
  fields.Get("peer", &result.peer);
  fields.Get("policy", &result.policy);
  fields.Get("workers", &result.workers);
  fields.Get("calm", &result.calm);
  fields.Get("mtbf", &result.mtbf);
  fields.Get("ok", &result.ok);
  fields.Get("reason", &result.reason);
  fields.Get("began", &result.began);
  fields.Get("wall_seconds", &result.wall_seconds);
  fields.Get("cpu_seconds", &result.cpu_seconds);
  fields.Get("cores", &result.cores);
  fields.Get("load", &result.load);
  fields.Get("on_cluster", &result.on_cluster);
  fields.Get("clock_offset", &result.clock_offset);
  fields.Get("ledger", &result.ledger);
  fields.Get("ledger_records", &result.ledger_records);
  result.measured = ParseMeasured(fields.Object("measured"));
  result.shared = ParseShared(fields.Object("shared"));
  return result;
}

absl::StatusOr<std::map<std::string, RunResult>> ParseResults(
    absl::string_view text) {
  std::map<std::string, RunResult> results;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    absl::StatusOr<RunResult> result = ParseResultLine(lines[i]);
    if (result.ok()) {
      std::string id = result->id;
      results[std::move(id)] = *std::move(result);
    } else if (i + 1 < lines.size()) {
      // The last line may be torn: the experiment was killed.
      return Annotate(result.status(), absl::StrCat("line ", i + 1));
    }
  }
  return results;
}

}  // namespace elasticdl::experiment
