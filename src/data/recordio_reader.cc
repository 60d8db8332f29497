// Reader of RecordIO files and folders.
#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data_readers.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/recordio.h"

namespace elasticdl::data::internal {
namespace {

// Decoded chunks are kept up to so many bytes. A shuffled range needs parts of
// chunks that others of its parts were needed for before, and a small data set
// is decoded once for all epochs.
constexpr size_t kCacheBytes = 256 << 20;

// The last chunks read, most recent first. Thread-safe.
class ChunkCache {
 public:
  using Key = std::pair<const RecordIoFile*, size_t>;

  absl::StatusOr<std::shared_ptr<const DecodedChunk>> Get(
      const RecordIoFile& file, size_t number) {
    const Key key(&file, number);
    if (auto chunk = Find(key)) return chunk;
    // Decoded outside the lock; two threads may do it twice, which is harmless.
    ELASTICDL_ASSIGN_OR_RETURN(DecodedChunk decoded, file.ReadChunk(number));
    auto chunk = std::make_shared<const DecodedChunk>(std::move(decoded));
    Insert(key, chunk, SizeOf(file.chunks()[number], *chunk));
    return chunk;
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const DecodedChunk> chunk;
    size_t bytes = 0;
  };

  // Without a compressor the records lie in the mapped file.
  static size_t SizeOf(const ChunkInfo& info, const DecodedChunk& chunk) {
    size_t bytes = chunk.records.size() * sizeof(absl::string_view);
    if (info.compressor == Compressor::kNone) return bytes;
    for (const absl::string_view record : chunk.records) bytes += record.size();
    return bytes;
  }

  std::shared_ptr<const DecodedChunk> Find(const Key& key) {
    MutexLock lock(mu_);
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->chunk;
  }

  void Insert(const Key& key, std::shared_ptr<const DecodedChunk> chunk,
              size_t bytes) {
    std::list<Entry> dropped;  // freed after the lock
    MutexLock lock(mu_);
    if (by_key_.count(key) != 0) return;
    entries_.push_front({key, std::move(chunk), bytes});
    by_key_[key] = entries_.begin();
    bytes_ += bytes;
    // A single chunk may be larger than the cache.
    while (bytes_ > kCacheBytes && entries_.size() > 1) {
      const auto last = std::prev(entries_.end());
      bytes_ -= last->bytes;
      by_key_.erase(last->key);
      dropped.splice(dropped.begin(), entries_, last);
    }
  }

  Mutex mu_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<Key, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

class RecordIoReader : public DataReader {
 public:
  using Files = std::map<std::string, std::shared_ptr<const RecordIoFile>>;

  RecordIoReader(std::string origin, std::vector<Shard> shards, Files files)
      : origin_(std::move(origin)),
        shards_(std::move(shards)),
        files_(std::move(files)) {}

  absl::StatusOr<std::vector<Shard>> CreateShards() override {
    if (shards_.empty()) return NoRecords(origin_);
    return shards_;
  }

  absl::StatusOr<RecordBatch> Read(const std::string& name, int64_t begin,
                                   int64_t end) override {
    const auto it = files_.find(name);
    if (it == files_.end()) {
      return absl::NotFoundError(
          absl::StrCat("read ", name, ": no such shard of ", origin_));
    }
    const RecordIoFile& file = *it->second;
    ELASTICDL_RETURN_IF_ERROR(CheckRange(name, begin, end, file.num_records()));
    RecordBatch batch;
    batch.records().reserve(static_cast<size_t>(end - begin));
    while (begin < end) {
      const size_t number = file.FindChunk(begin);
      const int64_t first = file.chunks()[number].first_record;
      ELASTICDL_ASSIGN_OR_RETURN(const auto chunk, cache_.Get(file, number));
      const auto size = static_cast<int64_t>(chunk->records.size());
      const int64_t stop = std::min(end, first + size);
      batch.records().insert(batch.records().end(),
                             chunk->records.begin() + (begin - first),
                             chunk->records.begin() + (stop - first));
      batch.Hold(chunk->memory);
      begin = stop;
    }
    return batch;
  }

  const Metadata& metadata() const override { return metadata_; }

 private:
  // Constant after construction.
  const std::string origin_;
  const std::vector<Shard> shards_;
  const Files files_;
  const Metadata metadata_;
  // Has its own synchronisation.
  ChunkCache cache_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataReader>> OpenRecordIoReader(
    const std::string& origin, const std::vector<std::string>& paths) {
  std::vector<Shard> shards;
  RecordIoReader::Files files;
  for (const std::string& path : paths) {
    ELASTICDL_ASSIGN_OR_RETURN(auto file, RecordIoFile::Open(path));
    if (file->num_records() > 0) {
      shards.push_back({path, 0, file->num_records()});
    }
    files[path] = std::move(file);
  }
  if (shards.empty()) return NoRecords(origin);
  return std::make_unique<RecordIoReader>(origin, std::move(shards),
                                          std::move(files));
}

}  // namespace elasticdl::data::internal
