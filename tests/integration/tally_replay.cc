#include "integration/tally_replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

// Sums of a few hundred floats.
constexpr double kRounding = 1e-3;

// Positions [first, second) of one minibatch.
using Range = std::pair<int64_t, int64_t>;

std::vector<float> ValuesOf(const checkpoint::NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(),
              values.size() * sizeof(float));
  return values;
}

}  // namespace

void TallyReplay::Train(const std::string& audit, int64_t last_step) {
  std::map<int64_t, std::vector<Range>> steps;
  for (const std::string& line : Lines(audit)) {
    const Json json = Json::parse(line);
    if (!json.contains("step")) {
      absl::StrAppend(&problems_, audit, " has ", line, "; ");
      continue;
    }
    if (json.at("step") > last_step) continue;
    // A line may have several minibatches of one worker.
    const int64_t end = json.at("end");
    for (int64_t at = json.at("begin"); at < end; at += minibatch_) {
      steps[json.at("step")].emplace_back(at, std::min(at + minibatch_, end));
    }
  }
  for (const auto& [step, minibatches] : steps) {
    int64_t records = 0;
    for (const auto& [begin, end] : minibatches) records += end - begin;
    versions_ += async_ ? static_cast<int64_t>(minibatches.size()) : 1;
    for (const auto& [begin, end] : minibatches) {
      const double share = async_ ? 1
                                  : static_cast<double>(end - begin) /
                                        static_cast<double>(records);
      for (int64_t id = begin; id < end; ++id) rows_[id] -= share;
    }
  }
}

std::string TallyReplay::Compare(const std::string& path) const {
  const auto folder = checkpoint::Resolve(path);
  if (!folder.ok()) return folder.status().ToString();
  const auto loaded = checkpoint::Load(*folder);
  if (!loaded.ok()) return loaded.status().ToString();
  std::string differences = problems_;
  const auto expect = [&](const std::string& what, double value,
                          double expected) {
    if (std::abs(value - expected) <= kRounding) return;
    absl::StrAppend(&differences, what, " is ", value, " and not ", expected,
                    "; ");
  };
  expect("the version", static_cast<double>(loaded->version),
         static_cast<double>(versions_));
  for (const checkpoint::NamedTensor& variable : loaded->variables) {
    const std::vector<float> values = ValuesOf(variable);
    for (const float value :
         {*std::min_element(values.begin(), values.end()),
          *std::max_element(values.begin(), values.end())}) {
      expect(variable.name, value, -static_cast<double>(versions_));
    }
  }
  std::map<int64_t, double> missing = rows_;
  for (const checkpoint::EmbeddingRows& part : loaded->embedding_tables) {
    const std::vector<float> values = ValuesOf(part.rows);
    for (size_t r = 0; r < part.ids.size(); ++r) {
      const auto found = missing.find(part.ids[r]);
      const double expected = found == missing.end() ? 0 : found->second;
      for (const size_t i : {2 * r, 2 * r + 1}) {
        expect(absl::StrCat("row ", part.ids[r]), values.at(i), expected);
      }
      if (found != missing.end()) missing.erase(found);
    }
  }
  for (const auto& [id, value] : missing) {
    absl::StrAppend(&differences, "row ", id, " is missing; ");
  }
  if (loaded->variables.empty()) differences += "no dense values; ";
  return differences;
}

}  // namespace elasticdl::test
