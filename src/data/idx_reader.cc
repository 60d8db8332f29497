// Reader of IDX images and labels.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data_readers.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/example.h"
#include "idx_file.h"

namespace elasticdl::data::internal {
namespace {

class IdxReader : public DataReader {
 public:
  IdxReader(IdxFile images, std::optional<IdxFile> labels, bool raw)
      : images_(std::move(images)), labels_(std::move(labels)), raw_(raw) {}

  absl::StatusOr<std::vector<Shard>> CreateShards() override {
    return std::vector<Shard>{{images_.path(), 0, images_.num_items()}};
  }

  absl::StatusOr<RecordBatch> Read(const std::string& name, int64_t begin,
                                   int64_t end) override {
    if (name != images_.path()) {
      return absl::NotFoundError(
          absl::StrCat("read ", name, ": no such shard"));
    }
    ELASTICDL_RETURN_IF_ERROR(
        CheckRange(name, begin, end, images_.num_items()));
    return raw_ ? ReadRaw(begin, end) : ReadExamples(begin, end);
  }

  const Metadata& metadata() const override { return metadata_; }

 private:
  RecordBatch ReadRaw(int64_t begin, int64_t end) const {
    RecordBatch batch;
    for (int64_t i = begin; i < end; ++i) {
      batch.records().push_back(images_.Item(i));
    }
    batch.Hold(images_.memory());
    return batch;
  }

  RecordBatch ReadExamples(int64_t begin, int64_t end) const {
    auto memory = std::make_shared<std::vector<std::string>>();
    memory->reserve(static_cast<size_t>(end - begin));
    std::vector<float> pixels(images_.item_bytes());
    ExampleBuilder builder;
    RecordBatch batch;
    for (int64_t i = begin; i < end; ++i) {
      const absl::string_view image = images_.Item(i);
      std::transform(image.begin(), image.end(), pixels.begin(), [](char c) {
        return static_cast<float>(static_cast<uint8_t>(c));
      });
      builder.SetFloats("image", pixels);
      if (labels_) {
        builder.SetInt64("label", static_cast<uint8_t>(labels_->Item(i)[0]));
      }
      memory->push_back(builder.Serialize());
      batch.records().push_back(memory->back());
    }
    batch.Hold(std::move(memory));
    return batch;
  }

  const IdxFile images_;
  const std::optional<IdxFile> labels_;
  const bool raw_;
  const Metadata metadata_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataReader>> OpenIdxReader(
    const std::string& images_path, const std::string& labels_path, bool raw) {
  ELASTICDL_ASSIGN_OR_RETURN(IdxFile images, IdxFile::Open(images_path));
  if (images.num_items() == 0) return NoRecords(images_path);
  std::optional<IdxFile> labels;
  if (!labels_path.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(labels, IdxFile::Open(labels_path));
    if (labels->num_items() != images.num_items() ||
        labels->item_bytes() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "open data '", images_path, "': ", images.num_items(), " images but ",
          labels->num_items(), " labels in ", labels_path));
    }
  }
  return std::make_unique<IdxReader>(std::move(images), std::move(labels), raw);
}

}  // namespace elasticdl::data::internal
