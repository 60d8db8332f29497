// CSV files to RecordIO.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/convert.h"
#include "elasticdl/data/csv.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/reader.h"

namespace elasticdl::data {
namespace {

constexpr int64_t kBatch = 1024;

struct Column {
  std::string feature;
  FeatureKind kind = FeatureKind::kNone;  // kNone: only empty fields so far
};

// The least kind that holds both what was and `field`.
FeatureKind Widen(FeatureKind kind, absl::string_view field) {
  int64_t whole = 0;
  float number = 0;
  if (field.empty() || kind == FeatureKind::kBytes) return kind;
  if (kind != FeatureKind::kFloat && absl::SimpleAtoi(field, &whole)) {
    return FeatureKind::kInt64;
  }
  return absl::SimpleAtof(field, &number) ? FeatureKind::kFloat
                                          : FeatureKind::kBytes;
}

void SetField(const Column& column, absl::string_view field,
              ExampleBuilder& builder) {
  int64_t whole = 0;
  float number = 0;
  if (field.empty()) return;
  if (column.kind == FeatureKind::kInt64 && absl::SimpleAtoi(field, &whole)) {
    builder.SetInt64(column.feature, whole);
  } else if (column.kind == FeatureKind::kFloat &&
             absl::SimpleAtof(field, &number)) {
    builder.SetFloat(column.feature, number);
  } else {
    builder.SetBytes(column.feature, field);
  }
}

// One conversion. Thread-compatible.
class CsvConverter {
 public:
  CsvConverter(DataReader& reader, std::vector<Shard> shards,
               const CsvConvertOptions& csv, const ConvertOptions& options)
      : reader_(reader),
        shards_(std::move(shards)),
        csv_(csv),
        options_(options) {}

  absl::StatusOr<int64_t> Run() {
    for (const std::string& name : reader_.metadata().column_names) {
      columns_.push_back({name});
    }
    ELASTICDL_RETURN_IF_ERROR(
        ForEachRow([this](const std::vector<std::string>& fields) {
          return Study(fields);
        }));
    ELASTICDL_RETURN_IF_ERROR(ChooseLabel());
    ELASTICDL_ASSIGN_OR_RETURN(writer_, DatasetWriter::Create(options_.output));
    ELASTICDL_RETURN_IF_ERROR(
        ForEachRow([this](const std::vector<std::string>& fields) {
          return Write(fields);
        }));
    ELASTICDL_RETURN_IF_ERROR(writer_->Close());
    return writer_->num_records();
  }

 private:
  template <typename OnRow>
  absl::Status ForEachRow(OnRow on_row) {
    for (const Shard& shard : shards_) {
      for (int64_t at = shard.begin; at < shard.end; at += kBatch) {
        ELASTICDL_ASSIGN_OR_RETURN(
            const RecordBatch batch,
            reader_.Read(shard.name, at, std::min(at + kBatch, shard.end)));
        int64_t number = at;
        for (const absl::string_view record : batch.records()) {
          auto fields = ParseCsvRecord(record, csv_.separator);
          const absl::Status status =
              fields.ok() ? on_row(*fields) : fields.status();
          if (!status.ok()) {
            return Annotate(status, absl::StrCat("convert ", shard.name,
                                                 ": record ", number));
          }
          ++number;
        }
        if (writer_ != nullptr && options_.progress) {
          options_.progress(writer_->num_records(), total_);
        }
      }
    }
    return absl::OkStatus();
  }

  // First pass: kinds and number of the columns.
  absl::Status Study(const std::vector<std::string>& fields) {
    for (size_t i = columns_.size(); total_ == 0 && i < fields.size(); ++i) {
      columns_.push_back({absl::StrCat("c", i)});
    }
    if (fields.size() != columns_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(fields.size(), " fields, expected ", columns_.size()));
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      columns_[i].kind =
          Widen(columns_[i].kind, absl::StripAsciiWhitespace(fields[i]));
    }
    ++total_;
    return absl::OkStatus();
  }

  absl::Status ChooseLabel() {
    if (csv_.label_column.empty()) return absl::OkStatus();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].feature != csv_.label_column &&
          absl::StrCat(i) != csv_.label_column) {
        continue;
      }
      if (columns_[i].kind != FeatureKind::kInt64) {
        return absl::InvalidArgumentError(
            absl::StrCat("label column '", csv_.label_column,
                         "' does not hold integers only"));
      }
      columns_[i].feature = options_.label_feature;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no label column '", csv_.label_column, "'"));
  }

  absl::Status Write(const std::vector<std::string>& fields) {
    builder_.Clear();
    for (size_t i = 0; i < fields.size(); ++i) {
      SetField(columns_[i], absl::StripAsciiWhitespace(fields[i]), builder_);
    }
    builder_.SerializeTo(record_);
    return writer_->Write(record_);
  }

  DataReader& reader_;
  const std::vector<Shard> shards_;
  const CsvConvertOptions& csv_;
  const ConvertOptions& options_;
  std::vector<Column> columns_;
  int64_t total_ = 0;
  std::unique_ptr<DatasetWriter> writer_;
  ExampleBuilder builder_;
  std::string record_;
};

}  // namespace

absl::StatusOr<int64_t> ConvertCsv(const std::string& path,
                                   const CsvConvertOptions& csv,
                                   const ConvertOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const auto reader,
      OpenDataReader(path, {{"reader_type", "CSV"},
                            {"header", csv.header},
                            {"sep", std::string(1, csv.separator)}}));
  ELASTICDL_ASSIGN_OR_RETURN(auto shards, reader->CreateShards());
  return CsvConverter(*reader, std::move(shards), csv, options).Run();
}

}  // namespace elasticdl::data
