#include "model_summary.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/text.h"
#include "elasticdl/page/history.h"

namespace elasticdl::master {
namespace {

constexpr size_t kMaxSummaryName = page::History::kMaxText;
constexpr int kMaxSummaryDimensions = 16;

const char* TensorKindName(v1::ModelTensor::Kind kind) {
  switch (kind) {
    case v1::ModelTensor::FROZEN:
      return "frozen";
    case v1::ModelTensor::BUFFER:
      return "buffer";
    case v1::ModelTensor::TABLE:
      return "on servers";
    default:
      return "trained";
  }
}

std::vector<int64_t> ShapeOf(const v1::ModelTensor& tensor) {
  std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  if (shape.size() > kMaxSummaryDimensions) shape.resize(kMaxSummaryDimensions);
  return shape;
}

// How many numbers it has; -1: not known, as any id of a table may have a row.
int64_t CountOf(const v1::ModelTensor& tensor) {
  double count = 1;
  for (const int64_t size : ShapeOf(tensor)) {
    if (size < 0) return -1;
    count *= static_cast<double>(size);
  }
  const bool open = tensor.kind() == v1::ModelTensor::TABLE && count == 0;
  return open || count > 1e18 ? -1 : static_cast<int64_t>(count);
}

int NumShown(const v1::ModelSummary& model) {
  return std::min(model.tensors_size(),
                  static_cast<int>(page::History::kMaxTensors));
}

std::string BytesText(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (size < 1e3) return absl::StrCat(bytes, " B");
  if (size < 1e6) return absl::StrFormat("%.1f kB", size / 1e3);
  if (size < 1e9) return absl::StrFormat("%.1f MB", size / 1e6);
  return absl::StrFormat("%.2f GB", size / 1e9);
}

using SummaryRow = std::array<std::string, 6>;

SummaryRow RowOf(const v1::ModelTensor& tensor) {
  const int64_t count = CountOf(tensor);
  std::string shape = absl::StrJoin(ShapeOf(tensor), "x");
  if (count < 0 && tensor.shape_size() > 0 && tensor.shape(0) == 0) {
    shape.replace(0, 1, "any");
  }
  // On a terminal, bytes beyond ASCII may be control characters, too.
  return {absl::CHexEscape(CutText(tensor.name(), kMaxSummaryName)),
          absl::CHexEscape(CutText(tensor.layer_type(), kMaxSummaryName)),
          shape,
          count < 0 ? "-" : absl::StrCat(count),
          tensor.bytes() > 0 ? BytesText(tensor.bytes()) : "-",
          TensorKindName(tensor.kind())};
}

}  // namespace

nlohmann::ordered_json ModelToJson(const v1::ModelSummary& model) {
  using Json = nlohmann::ordered_json;
  Json tensors = Json::array();
  for (int i = 0; i < NumShown(model); ++i) {
    const v1::ModelTensor& tensor = model.tensors(i);
    Json json = {{"name", CutText(tensor.name(), kMaxSummaryName)},
                 {"layer", CutText(tensor.layer_type(), kMaxSummaryName)},
                 {"shape", ShapeOf(tensor)},
                 {"kind", TensorKindName(tensor.kind())}};
    if (tensor.kind() != v1::ModelTensor::TABLE) {
      json["dtype"] = CutText(tensor.dtype(), kMaxSummaryName);
      json["bytes"] = tensor.bytes();
    }
    if (const int64_t count = CountOf(tensor); count >= 0) {
      json["count"] = count;
    }
    tensors.push_back(std::move(json));
  }
  return {{"trained", model.trained()},
          {"frozen", model.frozen()},
          {"buffers", model.buffers()},
          {"bytes", model.bytes()},
          {"num_tensors", model.num_tensors()},
          {"optimizer", CutText(model.optimizer(), kMaxSummaryName)},
          {"tensors", std::move(tensors)}};
}

std::vector<std::string> ModelToLines(const v1::ModelSummary& model) {
  std::vector<SummaryRow> rows = {
      {"parameter", "layer", "shape", "numbers", "size", "kind"}};
  for (int i = 0; i < NumShown(model); ++i) {
    rows.push_back(RowOf(model.tensors(i)));
  }
  std::array<size_t, 6> widths = {};
  for (const SummaryRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::vector<std::string> lines;
  for (const SummaryRow& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      const bool number = i == 3 || i == 4;
      absl::StrAppend(&line, i > 0 ? "  " : "", number ? pad : "", row[i],
                      number || i + 1 == row.size() ? "" : pad);
    }
    lines.push_back(std::move(line));
  }
  if (model.num_tensors() > NumShown(model)) {
    lines.push_back(
        absl::StrCat("and ", model.num_tensors() - NumShown(model), " more"));
  }
  lines.push_back(absl::StrCat(
      "the model has ", Count(model.trained(), "trained number"), ", ",
      model.frozen(), " frozen, ", model.buffers(), " in buffers: ",
      BytesText(model.bytes()), " without embeddings on servers",
      model.optimizer().empty()
          ? ""
          : absl::StrCat("; optimizer ",
                         absl::CHexEscape(
                             CutText(model.optimizer(), kMaxSummaryName)))));
  return lines;
}

}  // namespace elasticdl::master
