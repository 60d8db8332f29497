// Makers of the readers behind OpenDataReader.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/data/reader.h"

namespace elasticdl::data::internal {

// `files` are paths, in the order of the shards; `origin` names the whole in
// errors.
absl::StatusOr<std::unique_ptr<DataReader>> OpenRecordIoReader(
    const std::string& origin, const std::vector<std::string>& files);

struct TextOptions {
  // CSV: records may span lines inside quotes, blank lines are no records.
  // Otherwise every line is a record.
  bool csv = true;
  char separator = ',';
  enum class Header { kNo, kYes, kAuto } header = Header::kAuto;
  // Names when there is no header.
  std::vector<std::string> columns;
};
absl::StatusOr<std::unique_ptr<DataReader>> OpenTextReader(
    const std::string& origin, const std::vector<std::string>& files,
    const TextOptions& options);

// Records are tf.Examples {image: float[…], label: int64} as `data convert`
// makes them, or the items' bytes when `raw`.
absl::StatusOr<std::unique_ptr<DataReader>> OpenIdxReader(
    const std::string& images, const std::string& labels, bool raw);

struct SyntheticOptions {
  int64_t records = 0;
  int64_t shards = 1;
  uint64_t seed = 0;
  // > 0: records of that many random bytes.
  int64_t bytes = 0;
  // Otherwise tf.Examples {image: float[image], label: int64 < classes}; the
  // label can be learnt from the image.
  int64_t image = 784;
  int64_t classes = 10;
};
absl::StatusOr<std::unique_ptr<DataReader>> OpenSyntheticReader(
    const std::string& origin, const SyntheticOptions& options);

// INVALID_ARGUMENT that names what has no records.
absl::Status NoRecords(absl::string_view origin);
// OUT_OF_RANGE unless 0 <= begin <= end <= count.
absl::Status CheckRange(absl::string_view name, int64_t begin, int64_t end,
                        int64_t count);

}  // namespace elasticdl::data::internal
