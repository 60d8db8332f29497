// JobStatus as Prometheus text: names and units by its conventions.
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "http_status.h"

namespace elasticdl::master {
namespace {

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
      : job_(absl::StrCat("job_name=\"", Escape(job), "\"")) {}

  void Declare(const char* name, const char* type, const char* help) {
    absl::StrAppend(&text_, "# HELP elasticdl_", name, " ", help,
                    "\n# TYPE elasticdl_", name, " ", type, "\n");
  }
  void Value(const std::string& name, const std::string& labels,
             const std::string& value) {
    absl::StrAppend(&text_, "elasticdl_", name, "{", job_,
                    labels.empty() ? "" : ",", labels, "} ", value, "\n");
  }
  void Gauge(const char* name, const char* help, const std::string& value) {
    Declare(name, "gauge", help);
    Value(name, "", value);
  }
  void Histogram(const std::string& name, const char* help,
                 const trace::DurationCounts& durations) {
    Declare(name.c_str(), "histogram", help);
    int64_t sum = 0;
    for (size_t i = 0; i < durations.counts.size(); ++i) {
      sum += durations.counts[i];
      const std::string bound = i < trace::kDurationBounds.size()
                                    ? absl::StrCat(trace::kDurationBounds[i])
                                    : "+Inf";
      Value(name + "_bucket", absl::StrCat("le=\"", bound, "\""),
            absl::StrCat(sum));
    }
    Value(name + "_sum", "", MetricValue(durations.seconds));
    Value(name + "_count", "", absl::StrCat(sum));
  }
  std::string text() && { return std::move(text_); }

 private:
  const std::string job_;
  std::string text_;
};

std::string PodLabels(const StatusPod& pod) {
  return absl::StrCat("pod=\"", Escape(pod.name), "\",type=\"",
                      Escape(pod.type), "\"");
}

// One metric of every pod that has told it.
template <typename Get>
void AddPods(const JobStatus& status, const char* name, const char* type,
             const char* help, bool servers_only, const Get& get,
             MetricsWriter& out) {
  bool declared = false;
  for (const StatusPod& pod : status.pods) {
    if (!pod.usage.has_value() || (servers_only && pod.type != "ps")) continue;
    if (!std::exchange(declared, true)) out.Declare(name, type, help);
    out.Value(name, PodLabels(pod), get(*pod.usage));
  }
}

void AddUsage(const JobStatus& status, MetricsWriter& out) {
  const auto whole = [](int64_t PodUsage::*field) {
    return
        [field](const PodUsage& usage) { return absl::StrCat(usage.*field); };
  };
  AddPods(status, "pod_resident_memory_bytes", "gauge",
          "Resident memory of a pod.", false, whole(&PodUsage::memory_bytes),
          out);
  AddPods(
      status, "pod_cpu_seconds_total", "counter", "Processor time of a pod.",
      false,
      [](const PodUsage& usage) { return MetricValue(usage.cpu_seconds); },
      out);
  AddPods(status, "server_rows", "gauge",
          "Embedding rows on a parameter server.", true, whole(&PodUsage::rows),
          out);
  AddPods(status, "server_model_bytes", "gauge",
          "Dense values and tables on a parameter server.", true,
          whole(&PodUsage::model_bytes), out);
  AddPods(status, "server_pulls_total", "counter",
          "Pulls that a parameter server has answered.", true,
          whole(&PodUsage::pulls), out);
  AddPods(status, "server_pushes_total", "counter",
          "Pushes that a parameter server has applied.", true,
          whole(&PodUsage::pushes), out);
}

void AddDurations(const JobStatus& status, MetricsWriter& out) {
  const TelemetryTotals& totals = status.totals;
  out.Declare("training_seconds_total", "counter",
              "What the training threads of all workers did.");
  for (size_t i = 0; i < totals.phase_seconds.size(); ++i) {
    const auto kind = static_cast<trace::Kind>(i);
    out.Value("training_seconds_total",
              absl::StrCat("phase=\"", trace::KindField(kind), "\""),
              MetricValue(totals.phase_seconds[i]));
  }
  out.Histogram("step_duration_seconds", "Steps, as each worker has seen them.",
                totals.steps);
  out.Histogram("world_pause_seconds",
                "How long members did not train when a new world was formed.",
                totals.pauses);
  out.Histogram("server_pull_duration_seconds",
                "Pulls from all parameter servers, as workers have seen them.",
                totals.pulls);
  out.Histogram("server_push_duration_seconds",
                "Pushes to all parameter servers, as workers have seen them.",
                totals.pushes);
}

}  // namespace

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
  if (status.learning_rate.has_value()) {
    out.Gauge("learning_rate", "Learning rate of the last step.",
              MetricValue(*status.learning_rate));
  }
  out.Gauge("records_in_flight", "Records that workers hold.",
            absl::StrCat(status.ledger.in_flight));
  out.Gauge("records_set_aside", "Quarantined records.",
            absl::StrCat(status.ledger.set_aside));
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
  AddDurations(status, out);
  AddUsage(status, out);
  return std::move(out).text();
}

}  // namespace elasticdl::master
