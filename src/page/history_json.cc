// A History as JSON: docs/api.md.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/page/history.h"

namespace elasticdl::page {
namespace {

using Json = nlohmann::ordered_json;

// Microseconds are enough, and shorter than what a double can tell.
Json Time(double time) { return std::round(time * 1e6) / 1e6; }

Json Maybe(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json ToJson(const Span& span) {
  Json json = {{"id", span.id},
               {"row", span.row},
               {"type", span.server ? "ps" : "worker"},
               {"member", span.member},
               {"state", LaneStateName(span.state)},
               {"begin", Time(span.begin)},
               {"end", span.end.has_value() ? Time(*span.end) : Json(nullptr)}};
  if (span.ended != LaneEnd::kNone) {
    json["ended"] = span.ended == LaneEnd::kLost ? "lost" : "left";
  }
  if (!span.reason.empty()) json["reason"] = span.reason;
  if (span.members > 1) json["members"] = span.members;
  if (span.lost > 0) json["lost"] = span.lost;
  return json;
}

Json ToJson(const WorldMark& world) {
  Json json = {{"id", world.id},
               {"time", Time(world.time)},
               {"generation", world.generation},
               {"size", world.size},
               {"cause", world.cause},
               {"pause_ms", world.pause_ms}};
  if (world.worlds > 1) {
    json["worlds"] = world.worlds;
    json["total_pause_ms"] = world.total_pause_ms;
  }
  return json;
}

Json ToJson(const Point& point) {
  return Json::array({Time(point.time), point.step, Maybe(point.loss),
                      Maybe(point.learning_rate), point.records_per_s,
                      point.workers});
}

Json ToJson(const CheckpointMark& mark) {
  Json json = {{"time", Time(mark.time)},
               {"version", mark.version},
               {"ms", mark.ms},
               {"path", mark.path}};
  if (!mark.error.empty()) json["error"] = mark.error;
  return json;
}

Json ToJson(const EvaluationMark& mark) {
  Json metrics = Json::object();
  for (const auto& [name, value] : mark.metrics) metrics[name] = value;
  return {{"time", Time(mark.time)},
          {"step", mark.step},
          {"ms", mark.ms},
          {"metrics", metrics}};
}

Json ToJson(const JobMark& mark) {
  return {{"time", Time(mark.time)}, {"kind", mark.kind}, {"text", mark.text}};
}

template <typename T>
Json List(const std::vector<T>& items) {
  Json json = Json::array();
  for (const T& item : items) json.push_back(ToJson(item));
  return json;
}

Json ToJson(const Totals& totals) {
  return {{"worlds", totals.worlds},
          {"joined", totals.joined},
          {"left", totals.left},
          {"lost", totals.lost},
          {"checkpoints", totals.checkpoints},
          {"evaluations", totals.evaluations},
          {"events", totals.events},
          {"pause_ms", totals.pause_ms},
          {"longest_pause_ms", totals.longest_pause_ms}};
}

// A log without an end is of a job that runs or was killed.
Json StatusOf(const Summary& now) {
  return {
      {"job", now.job},
      {"state", now.state.empty() ? "unknown" : now.state},
      {"reason", now.state.empty() ? "the event log has no end" : now.reason},
      {"generation", now.generation},
      {"step", now.step},
      {"epoch", now.epoch},
      {"num_epochs", now.num_epochs},
      {"records_done", now.records_done},
      {"records_total", now.records_total},
      {"records_in_flight", now.records_in_flight},
      {"records_returned", now.records_returned},
      {"records_set_aside", now.records_set_aside},
      {"records_per_s", now.records_per_s},
      {"loss", Maybe(now.loss)},
      {"learning_rate", Maybe(now.learning_rate)},
      {"workers", now.workers},
      {"target_workers", now.target_workers},
      {"step_time", now.step_time.empty() ? Json() : Json(now.step_time)},
      {"pods", Json::array()}};
}

}  // namespace

std::string ChangesToJson(const Changes& changes, absl::string_view status) {
  const Summary& now = changes.summary;
  Json json = {{"version", 1},
               {"cursor", changes.cursor},
               {"all", changes.all},
               {"begin", Time(now.begin)},
               {"now", Time(changes.now)},
               {"ended", now.end.has_value()},
               {"resolution", changes.resolution},
               {"totals", ToJson(changes.totals)},
               {"spans", List(changes.spans)},
               {"worlds", List(changes.worlds)},
               {"points", List(changes.points)},
               {"checkpoints", List(changes.checkpoints)},
               {"evaluations", List(changes.evaluations)},
               {"marks", List(changes.marks)}};
  if (changes.all) {
    json["command"] = now.command;
    json["flags"] = now.flags;
  }
  std::string text = JsonText(json);
  // Lines and status are JSON already.
  text.pop_back();
  if (!changes.model.empty()) {
    absl::StrAppend(&text, ",\"model\":", changes.model);
  }
  absl::StrAppend(&text, ",\"events\":[");
  for (const EventLine& event : changes.events) {
    absl::StrAppend(&text, event.id == changes.events.front().id ? "" : ",",
                    event.json);
  }
  absl::StrAppend(
      &text, "],\"status\":",
      status.empty() ? JsonText(StatusOf(now)) : std::string(status), "}");
  return text;
}

}  // namespace elasticdl::page
