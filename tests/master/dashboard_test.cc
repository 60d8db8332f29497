// docs/grafana-dashboard.json asks for metrics that exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "http_status.h"

namespace elasticdl::master {
namespace {

using Json = nlohmann::json;

// A job that has something of everything.
JobStatus Everything() {
  JobStatus status;
  status.job = "mnist";
  status.loss = 0.25;
  status.learning_rate = 0.1;
  status.evaluations = {{100, {{"accuracy", 0.9}}}};
  status.pods = {{"w", 0, "worker", 77, "Running", "", PodUsage()},
                 {"s", 0, "ps", 78, "Running", "", PodUsage()}};
  return status;
}

// The names at the begin of lines: "elasticdl_loss{…} 0.25".
std::set<std::string> Exported(const std::string& metrics) {
  std::set<std::string> names;
  for (absl::string_view line : absl::StrSplit(metrics, '\n')) {
    if (absl::StartsWith(line, "#")) continue;
    names.emplace(line.substr(0, line.find_first_of("{ ")));
  }
  return names;
}

// The names in all expressions of the dashboard.
void Collect(const Json& json, std::set<std::string>& names) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const std::string prefix = "elasticdl_";
    for (size_t at = text.find(prefix); at != std::string::npos;
         at = text.find(prefix, at + 1)) {
      size_t end = at;
      while (end < text.size() &&
             (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) ||
              text[end] == '_' || text[end] == ':')) {
        ++end;
      }
      names.insert(text.substr(at, end - at));
    }
  } else if (json.is_structured()) {
    for (const Json& part : json) Collect(part, names);
  }
}

TEST(DashboardTest, AsksForMetricsThatExist) {
  const auto text =
      ReadFile(ELASTICDL_SOURCE_DIR "/docs/grafana-dashboard.json");
  ASSERT_TRUE(text.ok()) << text.status();
  const Json dashboard = Json::parse(*text, nullptr, false);
  ASSERT_FALSE(dashboard.is_discarded());
  std::set<std::string> asked;
  Collect(dashboard, asked);
  EXPECT_GE(asked.size(), 15u);
  const std::set<std::string> exported =
      Exported(StatusToMetrics(Everything()));
  EXPECT_GE(exported.size(), 20u);
  for (const std::string& name : asked) {
    EXPECT_EQ(exported.count(name), 1u) << name << " is not in /metrics";
  }
}

TEST(DashboardTest, NamesAreFoundInExpressions) {
  std::set<std::string> names;
  Collect(Json::parse(R"({"a":["rate(elasticdl_x_total[5m])/elasticdl_y",1]})"),
          names);
  EXPECT_THAT(names,
              ::testing::ElementsAre("elasticdl_x_total", "elasticdl_y"));
}

}  // namespace
}  // namespace elasticdl::master
