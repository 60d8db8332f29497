#include "top/model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "elasticdl/common/json_text.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

double NumberAt(const Json& json, const char* key, double otherwise) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : otherwise;
}

int64_t WholeAt(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::string TextAt(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

Json ObjectAt(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_object() ? *it : Json::object();
}

std::map<std::string, double> NumbersOf(const Json& object) {
  std::map<std::string, double> numbers;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) numbers[key] = value.get<double>();
  }
  return numbers;
}

double Find(const std::map<std::string, double>& numbers, const char* key) {
  const auto it = numbers.find(key);
  return it == numbers.end() ? 0 : it->second;
}

TopModel::Pod ParsePod(const Json& json) {
  TopModel::Pod pod;
  pod.name = TextAt(json, "name");
  pod.server = TextAt(json, "type") == "ps";
  pod.id = WholeAt(json, "id");
  pod.pid = WholeAt(json, "pid");
  pod.state = TextAt(json, "state");
  const Json usage = ObjectAt(json, "usage");
  pod.memory_bytes = NumberAt(usage, "memory_bytes", -1);
  pod.cpu_cores = NumberAt(usage, "cpu_cores", -1);
  pod.records_per_s = NumberAt(usage, "records_per_s", -1);
  pod.step_ms = NumberAt(usage, "step_ms", -1);
  pod.rows = NumberAt(usage, "rows", -1);
  return pod;
}

}  // namespace

absl::Status TopModel::Add(const std::string& text) {
  const Json json = ParseJson(text);
  if (!json.is_object() || !json.contains("status") ||
      !json["status"].is_object()) {
    return absl::InvalidArgumentError("not an answer of /api/v1/update");
  }
  cursor_ = WholeAt(json, "cursor");
  begin_ = NumberAt(json, "begin", 0);
  now_ = NumberAt(json, "now", 0);
  const Json& status = json["status"];
  texts_.clear();
  for (const char* field : {"job", "state", "reason"}) {
    texts_[field] = TextAt(status, field);
  }
  numbers_ = NumbersOf(status);
  totals_ = NumbersOf(ObjectAt(json, "totals"));
  step_time_ = NumbersOf(ObjectAt(status, "step_time"));
  const Json slowest = ObjectAt(status, "slowest");
  slowest_ = slowest.empty() ? -1 : WholeAt(slowest, "worker");
  if (json.value("all", false)) spans_.clear();
  if (json.contains("spans") && json["spans"].is_array()) {
    for (const Json& one : json["spans"]) {
      if (!one.is_object()) continue;
      Span span;
      span.row = WholeAt(one, "row");
      span.server = TextAt(one, "type") == "ps";
      span.member = WholeAt(one, "member");
      span.state = TextAt(one, "state");
      span.begin = NumberAt(one, "begin", 0);
      span.end = NumberAt(one, "end", -1);
      span.lost = TextAt(one, "ended") == "lost";
      spans_[WholeAt(one, "id")] = std::move(span);
    }
  }
  pods_.clear();
  if (status.contains("pods") && status["pods"].is_array()) {
    for (const Json& one : status["pods"]) {
      if (one.is_object()) pods_.push_back(ParsePod(one));
    }
  }
  TakePods();
  return absl::OkStatus();
}

void TopModel::TakePods() {
  for (Pod& pod : pods_) {
    if (pod.state != "Running") continue;
    for (const auto& [id, span] : spans_) {
      if (span.server == pod.server && span.member == pod.id && span.end < 0) {
        pod.state = span.state;
      }
    }
  }
}

std::string TopModel::Text(const char* field) const {
  const auto it = texts_.find(field);
  return it == texts_.end() ? "" : it->second;
}

double TopModel::Number(const char* field) const {
  return Find(numbers_, field);
}
double TopModel::Total(const char* field) const { return Find(totals_, field); }
double TopModel::StepTime(const char* field) const {
  return Find(step_time_, field);
}
int64_t TopModel::slowest() const { return slowest_; }

std::vector<TopModel::Span> TopModel::SpansOf(const Pod& pod) const {
  int64_t row = -1;
  for (const auto& [id, span] : spans_) {
    if (span.server == pod.server && span.member == pod.id) row = span.row;
  }
  std::vector<Span> spans;
  for (const auto& [id, span] : spans_) {
    if (span.row == row) spans.push_back(span);
  }
  return spans;
}

}  // namespace elasticdl::cli
