// Reader of records that are made up, the same every time.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data_readers.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/example.h"
#include "random.h"

namespace elasticdl::data::internal {
namespace {

constexpr absl::string_view kShardPrefix = "synthetic-";
// Memory of one record; larger ones are a mistake in the parameters.
constexpr int64_t kMaxRecordBytes = 1 << 30;

class SyntheticReader : public DataReader {
 public:
  explicit SyntheticReader(const SyntheticOptions& options)
      : options_(options) {}

  absl::StatusOr<std::vector<Shard>> CreateShards() override {
    std::vector<Shard> shards;
    for (int64_t i = 0; i < options_.shards; ++i) {
      const int64_t records = First(i + 1) - First(i);
      if (records > 0) {
        shards.push_back({absl::StrCat(kShardPrefix, i), 0, records});
      }
    }
    return shards;
  }

  absl::StatusOr<RecordBatch> Read(const std::string& name, int64_t begin,
                                   int64_t end) override {
    absl::string_view number = name;
    int64_t shard = 0;
    if (!absl::ConsumePrefix(&number, kShardPrefix) ||
        !absl::SimpleAtoi(number, &shard) || shard < 0 ||
        shard >= options_.shards) {
      return absl::NotFoundError(
          absl::StrCat("read ", name, ": no such shard"));
    }
    const int64_t first = First(shard);
    ELASTICDL_RETURN_IF_ERROR(
        CheckRange(name, begin, end, First(shard + 1) - first));
    auto memory = std::make_shared<std::vector<std::string>>();
    memory->reserve(static_cast<size_t>(end - begin));
    RecordBatch batch;
    for (int64_t i = begin; i < end; ++i) {
      memory->push_back(options_.bytes > 0 ? MakeBytes(first + i)
                                           : MakeExample(first + i));
      batch.records().push_back(memory->back());
    }
    batch.Hold(std::move(memory));
    return batch;
  }

  const Metadata& metadata() const override { return metadata_; }

 private:
  // Number of the first record of a shard in the whole.
  int64_t First(int64_t shard) const {
    const int64_t base = options_.records / options_.shards;
    return base * shard + std::min(shard, options_.records % options_.shards);
  }

  Random RandomOf(int64_t record) const {
    return Random(options_.seed ^ MixHash(static_cast<uint64_t>(record)));
  }

  std::string MakeBytes(int64_t record) const {
    Random random = RandomOf(record);
    std::string bytes(static_cast<size_t>(options_.bytes), '\0');
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = random.Next();
      std::memcpy(&bytes[at], &word, std::min(sizeof(word), bytes.size() - at));
    }
    return bytes;
  }

  // Pixels are brighter in the band that belongs to the class.
  std::string MakeExample(int64_t record) const {
    Random random = RandomOf(record);
    const auto classes = static_cast<uint64_t>(options_.classes);
    const uint64_t label = random.Below(classes);
    std::vector<float> image(static_cast<size_t>(options_.image));
    for (size_t i = 0; i < image.size(); ++i) {
      const bool band = i * classes / image.size() == label;
      image[i] = static_cast<float>(random.Below(128) + (band ? 96 : 0));
    }
    ExampleBuilder builder;
    builder.SetFloats("image", image);
    builder.SetInt64("label", static_cast<int64_t>(label));
    return builder.Serialize();
  }

  const SyntheticOptions options_;
  const Metadata metadata_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataReader>> OpenSyntheticReader(
    const std::string& origin, const SyntheticOptions& options) {
  if (options.records == 0) return NoRecords(origin);
  if (options.shards < 1 || options.shards > options.records ||
      options.image < 1 || options.classes < 1 ||
      options.bytes > kMaxRecordBytes ||
      options.image > kMaxRecordBytes / static_cast<int64_t>(sizeof(float))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "open data '", origin,
        "': shards must be in 1 to records, image and classes positive, a "
        "record at most 1 GiB"));
  }
  return std::make_unique<SyntheticReader>(options);
}

}  // namespace elasticdl::data::internal
