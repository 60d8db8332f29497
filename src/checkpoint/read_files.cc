#include "read_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::checkpoint::internal {
namespace {

// Size of one read: small enough that the checksum finds it in the CPU's cache.
constexpr int64_t kOneRead = 256 << 10;
// Smaller parts are read together, and copied.
constexpr int64_t kLeastDirect = 64 << 10;
// What a reader takes at a time. The kernel reads ahead within it.
constexpr int64_t kChunkBytes = 8 << 20;
// Enough to keep a disk busy while others compute checksums.
constexpr size_t kMostReaders = 4;

struct Chunk {
  size_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t crc32c = 0;
};

absl::Status ReadAt(int fd, const std::string& path, int64_t offset,
                    int64_t size, char* to) {
  for (int64_t used = 0; used < size;) {
    const ssize_t n =
        pread(fd, to + used, static_cast<size_t>(size - used), offset + used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("read ", path));
    if (n == 0) {
      return absl::DataLossError(
          absl::StrCat("read ", path, ": ends at byte ", offset + used));
    }
    used += n;
  }
  return absl::OkStatus();
}

// What the readers share. Thread-safe.
class Readers {
 public:
  explicit Readers(std::vector<FileToRead> files) : files_(std::move(files)) {
    for (size_t file = 0; file < files_.size(); ++file) {
      FileToRead& info = files_[file];
      std::sort(info.parts.begin(), info.parts.end(),
                [](const Placement& a, const Placement& b) {
                  return a.from.offset < b.from.offset;
                });
      total_ += info.bytes;
      // An empty file, too, must be there.
      for (int64_t begin = 0; begin == 0 || begin < info.bytes;
           begin += kChunkBytes) {
        chunks_.push_back(
            {file, begin, std::min(begin + kChunkBytes, info.bytes)});
      }
    }
  }

  // One for each full chunk: to start a thread takes as long as to read a small
  // file.
  size_t most_useful() const {
    return static_cast<size_t>(total_ / kChunkBytes);
  }

  // Reads chunks until there are no more, or something fails.
  void Run(const LoadProgress& progress) {
    std::vector<char> room(static_cast<size_t>(kOneRead));
    Fd fd;
    size_t open_file = files_.size();
    while (Chunk* const chunk = Take()) {
      const auto read = [&]() -> absl::Status {
        const FileToRead& file = files_[chunk->file];
        if (open_file != chunk->file) {
          fd.Reset(open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
          if (!fd.valid()) {
            return ErrnoToStatus(errno, absl::StrCat("open ", file.path));
          }
          open_file = chunk->file;
        }
        return Read(fd.get(), file, *chunk, room, progress);
      };
      if (const absl::Status status = read(); !status.ok()) Fail(status);
    }
  }

  // When all readers have ended.
  absl::Status Check(const LoadProgress& progress) {
    ELASTICDL_RETURN_IF_ERROR(status());
    // Another reader may have read the last bytes.
    if (progress && told_ != total_) {
      ELASTICDL_RETURN_IF_ERROR(progress(total_, total_));
    }
    std::vector<uint32_t> crcs(files_.size(), 0);
    for (const Chunk& chunk : chunks_) {
      uint32_t& crc = crcs[chunk.file];
      crc = JoinCrc32c(crc, chunk.crc32c,
                       static_cast<uint64_t>(chunk.end - chunk.begin));
    }
    for (size_t i = 0; i < files_.size(); ++i) {
      if (files_[i].crc32c.value_or(crcs[i]) == crcs[i]) continue;
      return absl::DataLossError(
          absl::StrCat("read ", files_[i].path, ": checksum differs"));
    }
    return absl::OkStatus();
  }

 private:
  Chunk* Take() {
    if (failed_) return nullptr;
    const size_t next = next_++;
    return next < chunks_.size() ? &chunks_[next] : nullptr;
  }

  void Fail(const absl::Status& status) {
    const MutexLock lock(mu_);
    if (status_.ok()) status_ = status;
    failed_ = true;
  }

  absl::Status status() {
    const MutexLock lock(mu_);
    return status_;
  }

  absl::Status Read(int fd, const FileToRead& file, Chunk& chunk,
                    std::vector<char>& room, const LoadProgress& progress) {
    // All of it at once: other readers read other places of the disk.
    posix_fadvise(fd, chunk.begin, chunk.end - chunk.begin,
                  POSIX_FADV_WILLNEED);
    auto part =
        std::upper_bound(file.parts.begin(), file.parts.end(), chunk.begin,
                         [](int64_t offset, const Placement& p) {
                           return offset < p.from.offset + p.from.size;
                         });
    for (int64_t at = chunk.begin; at < chunk.end && !failed_;) {
      while (part != file.parts.end() &&
             part->from.offset + part->from.size <= at) {
        ++part;
      }
      int64_t size = std::min(kOneRead, chunk.end - at);
      char* to = room.data();
      const bool direct = part != file.parts.end() && part->from.offset <= at &&
                          part->from.offset + part->from.size - at >=
                              std::min(size, kLeastDirect);
      if (direct) {
        size = std::min(size, part->from.offset + part->from.size - at);
        to = part->to + (at - part->from.offset);
      }
      ELASTICDL_RETURN_IF_ERROR(ReadAt(fd, file.path, at, size, to));
      chunk.crc32c =
          ExtendCrc32c(chunk.crc32c, {to, static_cast<size_t>(size)});
      if (!direct) {
        for (auto each = part;
             each != file.parts.end() && each->from.offset < at + size;
             ++each) {
          Copy(to, {at, size}, *each);
        }
      }
      at += size;
      ELASTICDL_RETURN_IF_ERROR(Failpoint("checkpoint.read"));
      const int64_t done = done_ += size;
      if (progress) {
        told_ = done;
        ELASTICDL_RETURN_IF_ERROR(progress(done, total_));
      }
    }
    return absl::OkStatus();
  }

  // The bytes that belong there, of those that were read.
  static void Copy(const char* read, const Range& from, const Placement& to) {
    const int64_t begin = std::max(from.offset, to.from.offset);
    const int64_t end =
        std::min(from.offset + from.size, to.from.offset + to.from.size);
    if (begin >= end) return;
    std::memcpy(to.to + (begin - to.from.offset), read + (begin - from.offset),
                static_cast<size_t>(end - begin));
  }

  // Constant after construction.
  std::vector<FileToRead> files_;
  int64_t total_ = 0;

  // Each chunk belongs to the reader that took it.
  std::vector<Chunk> chunks_;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> failed_{false};
  // Only used by the reader with `progress`.
  int64_t told_ = -1;

  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status ReadFiles(std::vector<FileToRead> files,
                       const LoadProgress& progress) {
  Readers readers(std::move(files));
  {
    // The calling thread is one of them: small files need no others.
    std::vector<std::unique_ptr<Thread>> others;
    for (size_t i = 1; i < std::min(kMostReaders, readers.most_useful()); ++i) {
      others.push_back(std::make_unique<Thread>(
          "read", [&readers] { readers.Run(nullptr); }));
    }
    readers.Run(progress);
  }
  return readers.Check(progress);
}

FileSource::FileSource(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat info;
  if (!fd_.valid()) {
    status_ = ErrnoToStatus(errno, absl::StrCat("open ", path));
  } else if (fstat(fd_.get(), &info) != 0) {
    status_ = ErrnoToStatus(errno, absl::StrCat("stat ", path));
  } else {
    size_ = info.st_size;
  }
}

absl::string_view FileSource::At(int64_t offset, int64_t size) {
  size = std::min(size, size_ - offset);
  if (size <= 0) return {};
  const auto end = begin_ + static_cast<int64_t>(window_.size());
  if (offset < begin_ || offset + size > end) {
    begin_ = offset;
    window_.resize(static_cast<size_t>(std::min(kMostAtOnce, size_ - offset)));
    if (status_.ok()) {
      status_ = ReadAt(fd_.get(), path_, offset,
                       static_cast<int64_t>(window_.size()), window_.data());
    }
    if (!status_.ok()) window_.clear();
  }
  return absl::string_view(window_).substr(
      std::min(window_.size(), static_cast<size_t>(offset - begin_)),
      static_cast<size_t>(size));
}

}  // namespace elasticdl::checkpoint::internal
