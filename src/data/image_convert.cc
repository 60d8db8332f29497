// IDX files and PNG grids to RecordIO.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/convert.h"
#include "elasticdl/data/example.h"
#include "idx_file.h"
#include "png_image.h"

namespace elasticdl::data {
namespace {

using internal::IdxFile;
using internal::PngImage;

constexpr int64_t kReportEvery = 1000;

// Writes image after image. Thread-compatible.
class ImageWriter {
 public:
  ImageWriter(const ConvertOptions& options,
              std::unique_ptr<DatasetWriter> writer, int64_t total)
      : options_(options), writer_(std::move(writer)), total_(total) {}

  absl::Status Write(absl::string_view image, std::optional<int64_t> label) {
    if (options_.images_as_bytes) {
      builder_.SetBytes(options_.image_feature, image);
    } else {
      pixels_.resize(image.size());
      std::transform(image.begin(), image.end(), pixels_.begin(), [](char c) {
        return static_cast<float>(static_cast<uint8_t>(c));
      });
      builder_.SetFloats(options_.image_feature, pixels_);
    }
    if (label) builder_.SetInt64(options_.label_feature, *label);
    builder_.SerializeTo(record_);
    ELASTICDL_RETURN_IF_ERROR(writer_->Write(record_));
    if (writer_->num_records() % kReportEvery == 0) Report();
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Close() {
    ELASTICDL_RETURN_IF_ERROR(writer_->Close());
    Report();
    return writer_->num_records();
  }

  int64_t num_records() const { return writer_->num_records(); }

 private:
  void Report() {
    if (options_.progress) options_.progress(writer_->num_records(), total_);
  }

  const ConvertOptions& options_;
  const std::unique_ptr<DatasetWriter> writer_;
  const int64_t total_;
  ExampleBuilder builder_;
  std::vector<float> pixels_;
  std::string record_;
};

// Integers separated by anything that is no digit or sign: JSON arrays, columns
// of text.
absl::StatusOr<std::vector<int64_t>> ReadLabels(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<int64_t> labels;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar("[], \t\r\n"), absl::SkipEmpty())) {
    int64_t label = 0;
    if (!absl::SimpleAtoi(word, &label)) {
      return absl::InvalidArgumentError(
          absl::StrCat("read ", path, ": label ", labels.size(), " is '",
                       word.substr(0, 20), "', not an integer"));
    }
    labels.push_back(label);
  }
  return labels;
}

// Copies the pixels of one tile.
void CopyTile(const PngImage& picture, const PngConvertOptions& png,
              int64_t tile, std::string& out) {
  const int64_t row_bytes = picture.width * picture.channels;
  if (png.image_per_row) {
    const auto* row = picture.pixels.data() + tile * row_bytes;
    out.assign(row, row + row_bytes);
    return;
  }
  const int64_t across = picture.width / png.image_width;
  const int64_t tile_row_bytes = png.image_width * picture.channels;
  const auto* corner = picture.pixels.data() +
                       tile / across * png.image_height * row_bytes +
                       tile % across * tile_row_bytes;
  out.clear();
  for (int64_t y = 0; y < png.image_height; ++y) {
    const auto* row = corner + y * row_bytes;
    out.append(row, row + tile_row_bytes);
  }
}

absl::StatusOr<int64_t> CountTiles(const std::string& path,
                                   const PngImage& picture,
                                   const PngConvertOptions& png) {
  const int64_t width = png.image_width;
  const int64_t height = png.image_height;
  if (width <= 0 || height <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("convert ", path, ": image size ", width, "x", height));
  }
  const bool fits = png.image_per_row ? picture.width == width * height
                                      : picture.width % width == 0 &&
                                            picture.height % height == 0;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "convert ", path, ": a picture of ", picture.width, "x", picture.height,
        " does not split into ", png.image_per_row ? "rows of " : "tiles of ",
        width, "x", height));
  }
  return png.image_per_row
             ? picture.height
             : (picture.width / width) * (picture.height / height);
}

}  // namespace

absl::StatusOr<int64_t> ConvertIdx(const std::string& images_path,
                                   const std::string& labels_path,
                                   const ConvertOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const IdxFile images, IdxFile::Open(images_path));
  const std::string beside =
      labels_path.empty() ? internal::FindIdxLabels(images_path) : labels_path;
  std::optional<IdxFile> labels;
  if (!beside.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(labels, IdxFile::Open(beside));
    if (labels->num_items() != images.num_items() ||
        labels->item_bytes() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "convert ", images_path, ": ", images.num_items(), " images but ",
          labels->num_items(), " labels in ", beside));
    }
  }
  if (images.num_items() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("convert ", images_path, ": no images"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(auto output,
                             DatasetWriter::Create(options.output));
  ImageWriter writer(options, std::move(output), images.num_items());
  for (int64_t i = 0; i < images.num_items(); ++i) {
    std::optional<int64_t> label;
    if (labels) label = static_cast<uint8_t>(labels->Item(i)[0]);
    ELASTICDL_RETURN_IF_ERROR(writer.Write(images.Item(i), label));
  }
  return writer.Close();
}

absl::StatusOr<int64_t> ConvertPngGrid(const std::vector<std::string>& pictures,
                                       const std::string& labels_path,
                                       const PngConvertOptions& png,
                                       const ConvertOptions& options) {
  std::vector<int64_t> labels;
  if (!labels_path.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(labels, ReadLabels(labels_path));
  }
  const bool labelled = !labels_path.empty();
  ELASTICDL_ASSIGN_OR_RETURN(auto output,
                             DatasetWriter::Create(options.output));
  const auto total = static_cast<int64_t>(labels.size());
  ImageWriter writer(options, std::move(output), total);
  std::string tile;
  for (const std::string& path : pictures) {
    ELASTICDL_ASSIGN_OR_RETURN(const PngImage picture, internal::ReadPng(path));
    ELASTICDL_ASSIGN_OR_RETURN(const int64_t tiles,
                               CountTiles(path, picture, png));
    for (int64_t i = 0; i < tiles; ++i) {
      std::optional<int64_t> label;
      if (labelled) {
        // The last picture may have empty tiles at its end.
        if (writer.num_records() == total) break;
        label = labels[static_cast<size_t>(writer.num_records())];
      }
      CopyTile(picture, png, i, tile);
      ELASTICDL_RETURN_IF_ERROR(writer.Write(tile, label));
    }
  }
  if (labelled && writer.num_records() < total) {
    return absl::InvalidArgumentError(
        absl::StrCat("convert ", pictures.empty() ? "" : pictures.front(), ": ",
                     writer.num_records(), " images but ", total, " labels in ",
                     labels_path));
  }
  return writer.Close();
}

}  // namespace elasticdl::data
