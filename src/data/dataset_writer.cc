// Folders of RecordIO files.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/convert.h"

namespace elasticdl::data {

DatasetWriter::DatasetWriter(OutputOptions options)
    : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<DatasetWriter>> DatasetWriter::Create(
    OutputOptions options) {
  if (options.records_per_file <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "records per file must be positive, not ", options.records_per_file));
  }
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.directory));
  ELASTICDL_ASSIGN_OR_RETURN(const auto names,
                             ListDirectory(options.directory));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, "data-")) {
      return absl::AlreadyExistsError(absl::StrCat(
          "write ", options.directory, ": it has ", name, " already"));
    }
  }
  return std::unique_ptr<DatasetWriter>(new DatasetWriter(std::move(options)));
}

absl::Status DatasetWriter::Write(absl::string_view record) {
  if (file_ != nullptr && file_->num_records() >= options_.records_per_file) {
    ELASTICDL_RETURN_IF_ERROR(Close());
  }
  if (file_ == nullptr) {
    const std::string path =
        JoinPath(options_.directory, absl::StrFormat("data-%05d", num_files_));
    ELASTICDL_ASSIGN_OR_RETURN(file_,
                               RecordIoWriter::Create(path, options_.file));
    ++num_files_;
  }
  ELASTICDL_RETURN_IF_ERROR(file_->Write(record));
  ++num_records_;
  return absl::OkStatus();
}

absl::Status DatasetWriter::Close() {
  if (file_ == nullptr) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(file_->Close());
  file_.reset();
  return absl::OkStatus();
}

}  // namespace elasticdl::data
