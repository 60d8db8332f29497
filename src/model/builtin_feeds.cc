// Built-in feeds.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "builtins.h"
#include "elasticdl/common/status.h"
#include "expression.h"

namespace elasticdl::model {
namespace {

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape=", text, " is not a shape such as 1x28x28"));
    }
    shape.push_back(size);
  }
  return shape;
}

std::vector<std::string> Names(const std::string& text) {
  return absl::StrSplit(text, '|', absl::SkipEmpty());
}

absl::StatusOr<FeedFunction> ImageFeed(const Expression& e) {
  ELASTICDL_RETURN_IF_ERROR(e.CheckArgs(
      {"shape", "image", "label", "scale", "mean", "std", "layout"}));
  ImageOptions options;
  ELASTICDL_ASSIGN_OR_RETURN(options.shape, ParseShape(e.Get("shape", "")));
  options.image_feature = e.Get("image", options.image_feature);
  options.label_feature = e.Get("label", options.label_feature);
  ELASTICDL_ASSIGN_OR_RETURN(const double divisor, e.Number("scale", 255));
  ELASTICDL_ASSIGN_OR_RETURN(options.mean, e.Number("mean", 0));
  ELASTICDL_ASSIGN_OR_RETURN(options.std, e.Number("std", 1));
  if (divisor == 0 || options.std == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(e.name, ": scale and std must not be 0"));
  }
  options.scale = 1 / divisor;
  const std::string layout = e.Get("layout", "chw");
  if (layout != "chw" && layout != "hwc") {
    return absl::InvalidArgumentError(
        absl::StrCat(e.name, ": layout=", layout, " is not chw or hwc"));
  }
  options.channels_last = layout == "hwc";
  return FeedFunction(
      [options](const Records& records, Mode mode, const Metadata&) {
        return ImageBatch(records, mode, options);
      });
}

torch::Tensor AnyFeature(const std::vector<data::ExampleView>& examples,
                         const std::string& name) {
  const data::FeatureView first = Value(examples.at(0).Get(name));
  const auto width = static_cast<int64_t>(Value(first.size()));
  return first.kind() == data::FeatureKind::kInt64
             ? Int64Feature(examples, name, width)
             : FloatFeature(examples, name, width);
}

absl::StatusOr<FeedFunction> ExampleFeed(const Expression& e) {
  ELASTICDL_RETURN_IF_ERROR(e.CheckArgs({"features", "label"}));
  const std::vector<std::string> names = Names(e.Get("features", ""));
  if (names.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(e.name, " needs features=name|name"));
  }
  return FeedFunction([names, label = e.Get("label", "label")](
                          const Records& records, Mode mode, const Metadata&) {
    const auto examples = ParseExamples(records);
    Batch batch;
    for (const std::string& name : names) {
      batch.features.Add(name, AnyFeature(examples, name));
    }
    if (mode != Mode::kPrediction) {
      batch.labels = AnyFeature(examples, label);
      if (batch.labels.size(1) == 1) batch.labels = batch.labels.squeeze(1);
    }
    return batch;
  });
}

// Index of a column given by name or number.
size_t ColumnIndex(const std::string& column, const Metadata& metadata,
                   size_t num_columns) {
  const auto& names = metadata.column_names;
  const auto it = std::find(names.begin(), names.end(), column);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  size_t index = 0;
  if (absl::SimpleAtoi(column, &index) && index < num_columns) return index;
  throw std::invalid_argument("there is no column '" + column + "'");
}

float CsvNumber(const std::vector<std::string>& fields, size_t column) {
  float value = 0;
  if (column < fields.size() && absl::SimpleAtof(fields[column], &value)) {
    return value;
  }
  throw std::invalid_argument(
      column < fields.size()
          ? absl::StrCat("column ", column, ": '", fields[column],
                         "' is not a number")
          : absl::StrCat("there is no column ", column, ", only ",
                         fields.size(), " columns"));
}

struct CsvOptions {
  std::string label;
  std::vector<std::string> features;
  bool integer_label = true;
  char separator = ',';
};

// The feature columns of a file with `num_columns` columns.
std::vector<size_t> FeatureColumns(const CsvOptions& options, size_t label,
                                   const Metadata& metadata,
                                   size_t num_columns) {
  std::vector<size_t> columns;
  columns.reserve(options.features.size());
  for (const std::string& name : options.features) {
    columns.push_back(ColumnIndex(name, metadata, num_columns));
  }
  if (!columns.empty()) return columns;
  for (size_t i = 0; i < num_columns; ++i) {
    if (i != label) columns.push_back(i);
  }
  return columns;
}

Batch CsvBatch(const CsvOptions& options, const Records& records, Mode mode,
               const Metadata& metadata) {
  std::vector<std::vector<std::string>> rows;
  for (const absl::string_view record : records) {
    rows.push_back(Value(data::ParseCsvRecord(record, options.separator)));
  }
  const size_t num_columns = rows.at(0).size();
  const size_t label = options.label.empty()
                           ? num_columns - 1
                           : ColumnIndex(options.label, metadata, num_columns);
  const auto columns = FeatureColumns(options, label, metadata, num_columns);
  const auto num_rows = static_cast<int64_t>(rows.size());
  torch::Tensor features =
      torch::empty({num_rows, static_cast<int64_t>(columns.size())});
  float* out = features.data_ptr<float>();
  torch::Tensor labels = torch::empty({num_rows});
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const size_t column : columns) *out++ = CsvNumber(rows[i], column);
    if (mode != Mode::kPrediction) {
      labels.data_ptr<float>()[i] = CsvNumber(rows[i], label);
    }
  }
  Batch batch;
  batch.features = features;
  if (mode != Mode::kPrediction) {
    batch.labels = options.integer_label ? labels.to(torch::kLong) : labels;
  }
  return batch;
}

absl::StatusOr<FeedFunction> CsvFeed(const Expression& e) {
  ELASTICDL_RETURN_IF_ERROR(
      e.CheckArgs({"label", "label_type", "features", "separator"}));
  CsvOptions options;
  options.label = e.Get("label", "");
  options.features = Names(e.Get("features", ""));
  const std::string type = e.Get("label_type", "int");
  const std::string separator = e.Get("separator", ",");
  if ((type != "int" && type != "float") || separator.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        e.name, ": label_type must be int or float, separator one character"));
  }
  options.integer_label = type == "int";
  options.separator = separator[0];
  return FeedFunction(
      [options](const Records& records, Mode mode, const Metadata& metadata) {
        return CsvBatch(options, records, mode, metadata);
      });
}

}  // namespace

absl::StatusOr<FeedFunction> BuiltinFeed(const std::string& text) {
  ELASTICDL_ASSIGN_OR_RETURN(const Expression e, ParseExpression(text));
  if (e.name == "image_classification") return ImageFeed(e);
  if (e.name == "example") return ExampleFeed(e);
  if (e.name == "csv") return CsvFeed(e);
  return absl::NotFoundError(
      absl::StrCat("there is no built-in feed '", e.name,
                   "'; known: image_classification, example, csv"));
}

}  // namespace elasticdl::model
