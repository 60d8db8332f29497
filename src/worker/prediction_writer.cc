#include "prediction_writer.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

// A field that may hold a comma or a quote.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

absl::StatusOr<PredictionWriter> PredictionWriter::Open(const std::string& dir,
                                                        int64_t worker_id) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir));
  PredictionWriter writer;
  writer.path_ =
      JoinPath(dir, absl::StrCat("predictions-worker-", worker_id, ".csv"));
  writer.fd_.Reset(open(writer.path_.c_str(),
                        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!writer.fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", writer.path_));
  }
  return writer;
}

absl::Status PredictionWriter::Add(const std::string& shard,
                                   const std::vector<int64_t>& records,
                                   const Outputs& outputs) {
  const auto rows = static_cast<int64_t>(records.size());
  std::vector<torch::Tensor> columns;
  std::string header = "shard,record";
  for (const auto& [name, output] : outputs.items()) {
    if (output.dim() == 0 || output.size(0) != rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("model output '", name, "' does not have one row for ",
                       "each of the ", rows, " records"));
    }
    columns.push_back(output.detach()
                          .to(torch::kCPU, torch::kFloat64)
                          .reshape({rows, -1})
                          .contiguous());
    for (int64_t i = 0; i < columns.back().size(1); ++i) {
      absl::StrAppend(&header, ",", name.empty() ? "output" : name, "_", i);
    }
  }
  if (!header_written_) {
    absl::StrAppend(&pending_, header, "\n");
    header_written_ = true;
  }
  const std::string quoted = Quoted(shard);
  for (int64_t row = 0; row < rows; ++row) {
    absl::StrAppend(&pending_, quoted, ",", records[static_cast<size_t>(row)]);
    for (const torch::Tensor& column : columns) {
      const double* values = column.data_ptr<double>();
      for (int64_t i = 0; i < column.size(1); ++i) {
        absl::StrAppend(&pending_, ",", values[row * column.size(1) + i]);
      }
    }
    pending_ += '\n';
  }
  return absl::OkStatus();
}

absl::Status PredictionWriter::Flush() {
  ELASTICDL_RETURN_IF_ERROR(WriteAll(fd_.get(), pending_, path_));
  bytes_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
