// JobStatus as JSON and as Prometheus text.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "http_status.h"

namespace elasticdl::master {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity.
Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json Number(const std::optional<double>& value) {
  return value.has_value() ? Number(*value) : Json(nullptr);
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Label values and text of Prometheus.
std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string MetricValue(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrCat(value);
}

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& job)
      : job_(absl::StrCat("job=\"", Escape(job), "\"")) {}

  void Declare(const char* name, const char* type, const char* help) {
    absl::StrAppend(&text_, "# HELP elasticdl_", name, " ", help,
                    "\n# TYPE elasticdl_", name, " ", type, "\n");
  }
  void Value(const char* name, const std::string& labels,
             const std::string& value) {
    absl::StrAppend(&text_, "elasticdl_", name, "{", job_,
                    labels.empty() ? "" : ",", labels, "} ", value, "\n");
  }
  void Gauge(const char* name, const char* help, const std::string& value) {
    Declare(name, "gauge", help);
    Value(name, "", value);
  }
  std::string text() && { return std::move(text_); }

 private:
  const std::string job_;
  std::string text_;
};

}  // namespace

std::string StatusToJson(const JobStatus& status) {
  Json pods = Json::array();
  for (const StatusPod& pod : status.pods) {
    pods.push_back({{"name", pod.name},
                    {"id", pod.id},
                    {"type", pod.type},
                    {"pid", pod.pid},
                    {"state", pod.state},
                    {"message", pod.message}});
  }
  Json evaluations = Json::array();
  for (const StatusEvaluation& evaluation : status.evaluations) {
    Json metrics = Json::object();
    for (const auto& [name, value] : evaluation.metrics) {
      metrics[name] = Number(value);
    }
    evaluations.push_back({{"step", evaluation.step}, {"metrics", metrics}});
  }
  return Dump({{"job", status.job},
               {"state", status.state},
               {"reason", status.reason},
               {"generation", status.generation},
               {"step", status.step},
               {"epoch", status.epoch},
               {"num_epochs", status.num_epochs},
               {"records_done", status.records_done},
               {"records_total", status.records_total},
               {"records_per_s", Number(status.records_per_s)},
               {"loss", Number(status.loss)},
               {"learning_rate", Number(status.learning_rate)},
               {"records_in_flight", status.ledger.in_flight},
               {"records_returned", status.ledger.returned},
               {"records_set_aside", status.ledger.set_aside},
               {"workers", status.workers},
               {"target_workers", status.target_workers},
               {"pods", pods},
               {"evaluations", evaluations}});
}

std::string HistoryToJson(const std::vector<StatusPoint>& points) {
  Json json = Json::array();
  for (const StatusPoint& point : points) {
    json.push_back(
        Json::array({Number(point.seconds), point.step, Number(point.loss),
                     Number(point.records_per_s)}));
  }
  return Dump(json);
}

std::string StatusToMetrics(const JobStatus& status) {
  MetricsWriter out(status.job);
  out.Gauge("step", "Committed training steps.", absl::StrCat(status.step));
  out.Gauge("epoch", "Present epoch, from 1.", absl::StrCat(status.epoch));
  out.Gauge("generation", "Generation of the world of workers.",
            absl::StrCat(status.generation));
  out.Declare("records_total", "counter", "Records in the model.");
  out.Value("records_total", "", absl::StrCat(status.records_done));
  out.Gauge("records_per_second", "Training speed.",
            MetricValue(status.records_per_s));
  if (status.loss.has_value()) {
    out.Gauge("loss", "Training loss.", MetricValue(*status.loss));
  }
  out.Gauge("workers", "Workers that train.", absl::StrCat(status.workers));
  out.Gauge("target_workers", "Workers wanted.",
            absl::StrCat(status.target_workers));
  std::map<std::string, int> states;
  for (const StatusPod& pod : status.pods) {
    ++states[absl::StrCat("type=\"", Escape(pod.type), "\",state=\"",
                          Escape(pod.state), "\"")];
  }
  out.Declare("pods", "gauge", "Pods by type and state.");
  for (const auto& [labels, count] : states) {
    out.Value("pods", labels, absl::StrCat(count));
  }
  if (!status.evaluations.empty()) {
    out.Declare("evaluation", "gauge", "Metrics of the last evaluation.");
    for (const auto& [name, value] : status.evaluations.back().metrics) {
      out.Value("evaluation", absl::StrCat("metric=\"", Escape(name), "\""),
                MetricValue(value));
    }
  }
  return std::move(out).text();
}

}  // namespace elasticdl::master
