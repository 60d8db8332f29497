// Makes RecordIO data sets of tf.Example records from other formats.
//
// Images become float lists of their bytes as they are (0 to 255, rows from the
// top, channels last); scaling is the model's business. Labels are one int64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/data/recordio.h"

namespace elasticdl::data {

// Called now and then with the records done and those expected (0: unknown).
using Progress = std::function<void(int64_t done, int64_t total)>;

// A folder of RecordIO files data-00000, data-00001, …
struct OutputOptions {
  std::string directory;
  int64_t records_per_file = 4096;
  // Smaller chunks than RecordIO's own default: range reads are cheap then.
  RecordIoWriter::Options file{Compressor::kSnappy, 1 << 20};
};

// Writes such a folder. Thread-compatible. A folder that has data-* files
// already is refused (ALREADY_EXISTS) rather than mixed.
class DatasetWriter {
 public:
  static absl::StatusOr<std::unique_ptr<DatasetWriter>> Create(
      OutputOptions options);

  absl::Status Write(absl::string_view record);
  // Completes the last file.
  absl::Status Close();
  int64_t num_records() const { return num_records_; }
  int64_t num_files() const { return num_files_; }

 private:
  explicit DatasetWriter(OutputOptions options);

  const OutputOptions options_;
  std::unique_ptr<RecordIoWriter> file_;
  int64_t num_records_ = 0;
  int64_t num_files_ = 0;
};

struct ConvertOptions {
  OutputOptions output;
  // kFloat: a float list; kBytes: one bytes value.
  bool images_as_bytes = false;
  std::string image_feature = "image";
  std::string label_feature = "label";
  Progress progress;
};

// Each returns the number of records written. Errors name the file.

// `labels` may be empty: then the usual name beside `images`, or no labels.
absl::StatusOr<int64_t> ConvertIdx(const std::string& images,
                                   const std::string& labels,
                                   const ConvertOptions& options);

struct CsvConvertOptions {
  char separator = ',';
  std::string header = "auto";  // true, false, auto
  // Column (name or number from 0) that becomes the label feature; empty: no
  // column does. It must hold integers.
  std::string label_column;
};
// A column of integers becomes int64, of numbers float, of anything else bytes;
// features are named by the header, or c0, c1, … An empty field is left out.
absl::StatusOr<int64_t> ConvertCsv(const std::string& path,
                                   const CsvConvertOptions& csv,
                                   const ConvertOptions& options);

struct PngConvertOptions {
  int64_t image_width = 0;
  int64_t image_height = 0;
  // A row of the picture is one image, pixel after pixel; otherwise the picture
  // is a grid of tiles, row by row.
  bool image_per_row = false;
};
// The pictures one after the other. `labels` is a JSON array or a text of
// integers; empty: no labels. Tiles after the last label are ignored.
absl::StatusOr<int64_t> ConvertPngGrid(const std::vector<std::string>& pictures,
                                       const std::string& labels,
                                       const PngConvertOptions& png,
                                       const ConvertOptions& options);

}  // namespace elasticdl::data
