// JobStatus as JSON.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "http_status.h"

namespace elasticdl::master {
namespace {

using Json = nlohmann::ordered_json;

double InMs(double seconds) { return seconds * 1e3; }

Json UsageToJson(const StatusPod& pod) {
  if (!pod.usage.has_value()) return nullptr;
  const PodUsage& usage = *pod.usage;
  Json json = {{"memory_bytes", usage.memory_bytes},
               {"cpu_cores", JsonNumber(usage.cpu_cores)}};
  if (pod.type == "ps") {
    json["rows"] = usage.rows;
    json["model_bytes"] = usage.model_bytes;
    json["pulls_per_s"] = JsonNumber(usage.pulls_per_s);
    json["pushes_per_s"] = JsonNumber(usage.pushes_per_s);
  } else {
    json["records_per_s"] = JsonNumber(usage.records_per_s);
    json["step_ms"] = JsonNumber(InMs(usage.step_seconds));
    json["own_ms"] = JsonNumber(InMs(usage.own_seconds));
  }
  return json;
}

Json StepTimeToJson(const std::optional<StepBreakdown>& time) {
  if (!time.has_value()) return nullptr;
  Json json = {{"step_ms", JsonNumber(InMs(time->total))}};
  for (size_t i = 0; i < time->seconds.size(); ++i) {
    const auto kind = static_cast<trace::Kind>(i);
    if (!trace::IsStepKind(kind)) continue;
    json[absl::StrCat(trace::KindField(kind), "_ms")] =
        JsonNumber(InMs(time->seconds[i]));
  }
  return json;
}

Json SlowestToJson(const std::optional<Slowest>& slowest) {
  if (!slowest.has_value()) return nullptr;
  return {{"worker", slowest->worker_id},
          {"own_ms", JsonNumber(InMs(slowest->own_seconds))},
          {"median_ms", JsonNumber(InMs(slowest->median_seconds))}};
}

}  // namespace

std::string StatusToJson(const JobStatus& status, bool evaluations) {
  Json pods = Json::array();
  for (const StatusPod& pod : status.pods) {
    pods.push_back({{"name", pod.name},
                    {"id", pod.id},
                    {"type", pod.type},
                    {"pid", pod.pid},
                    {"state", pod.state},
                    {"message", pod.message},
                    {"usage", UsageToJson(pod)}});
  }
  Json list = Json::array();
  for (const StatusEvaluation& evaluation : status.evaluations) {
    Json metrics = Json::object();
    for (const auto& [name, value] : evaluation.metrics) {
      metrics[name] = JsonNumber(value);
    }
    list.push_back({{"step", evaluation.step}, {"metrics", metrics}});
  }
  Json json = {{"job", status.job},
               {"state", status.state},
               {"reason", status.reason},
               {"generation", status.generation},
               {"step", status.step},
               {"epoch", status.epoch},
               {"num_epochs", status.num_epochs},
               {"records_done", status.records_done},
               {"records_total", status.records_total},
               {"records_per_s", JsonNumber(status.records_per_s)},
               {"loss", JsonNumber(status.loss)},
               {"learning_rate", JsonNumber(status.learning_rate)},
               {"records_in_flight", status.ledger.in_flight},
               {"records_returned", status.ledger.returned},
               {"records_set_aside", status.ledger.set_aside},
               {"workers", status.workers},
               {"target_workers", status.target_workers},
               {"target_servers", status.target_servers},
               {"step_time", StepTimeToJson(status.step_time)},
               {"slowest", SlowestToJson(status.slowest)},
               {"pods", pods}};
  if (evaluations) json["evaluations"] = list;
  return JsonText(json);
}

std::string HistoryToJson(const std::vector<StatusPoint>& points) {
  Json json = Json::array();
  for (const StatusPoint& point : points) {
    json.push_back(
        Json::array({JsonNumber(point.seconds), point.step,
                     JsonNumber(point.loss), JsonNumber(point.records_per_s)}));
  }
  return JsonText(json);
}

}  // namespace elasticdl::master
