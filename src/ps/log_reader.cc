#include "log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"
#include "log_frame.h"

namespace elasticdl::ps {
namespace {

// How many bytes there were, up to `size`.
absl::StatusOr<size_t> ReadAt(int fd, char* to, size_t size, uint64_t offset) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n =
        pread(fd, to + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, "read a log");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

absl::StatusOr<LogReader> LogReader::Open(const std::string& dir) {
  LogReader reader(dir);
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  int64_t newest = -1;
  for (absl::string_view name : names) {
    int64_t number = 0;
    if (absl::ConsumePrefix(&name, "snapshot-") &&
        absl::SimpleAtoi(name, &number)) {
      newest = std::max(newest, number);
    }
  }
  if (newest >= 0) {
    const std::string path = JoinPath(dir, absl::StrCat("snapshot-", newest));
    reader.snapshot_ = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info = {};
    if (!reader.snapshot_.valid() ||
        fstat(reader.snapshot_.get(), &info) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("open ", path));
    }
    reader.snapshot_bytes_ = static_cast<uint64_t>(info.st_size);
    reader.position_ = newest;
  }
  ELASTICDL_RETURN_IF_ERROR(reader.OpenSegment());
  return reader;
}

absl::Status LogReader::ReadSnapshot(size_t most, Buffer& piece) {
  const size_t size = std::min<uint64_t>(most, snapshot_bytes_ - snapshot_at_);
  if (piece.Resize(size) == nullptr && size > 0) {
    return absl::ResourceExhaustedError("no memory for a snapshot's piece");
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      const size_t done,
      ReadAt(snapshot_.get(), piece.data(), size, snapshot_at_));
  if (done != size) return absl::DataLossError("a snapshot became shorter");
  snapshot_at_ += size;
  return absl::OkStatus();
}

// Every file begins with the entry that it is named after.
absl::Status LogReader::OpenSegment() {
  const std::string path = JoinPath(dir_, absl::StrCat("log-", position_));
  segment_ = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!segment_.valid()) {
    return absl::DataLossError(absl::StrCat(path, " is gone"));
  }
  offset_ = 0;
  return absl::OkStatus();
}

absl::Status LogReader::ReadEntries(int64_t end, size_t most, Buffer& frames) {
  frames.Resize(0);
  if (position_ >= end) return absl::OkStatus();
  // The heads tell how many whole frames fit.
  size_t size = 0;
  int64_t entries = 0;
  while (position_ + entries < end && (entries == 0 || size < most)) {
    FrameHead head;
    ELASTICDL_ASSIGN_OR_RETURN(
        const size_t read,
        ReadAt(segment_.get(), reinterpret_cast<char*>(&head), sizeof(head),
               offset_ + size));
    if (read < sizeof(head)) {
      if (entries > 0) break;
      // The entries go on in the next file.
      if (offset_ == 0) return absl::DataLossError("an empty log");
      ELASTICDL_RETURN_IF_ERROR(OpenSegment());
      continue;
    }
    if (head.head_crc != head.Checksum() || head.TooLong() ||
        head.number != static_cast<uint64_t>(position_ + entries)) {
      return absl::DataLossError("the log has a bad entry");
    }
    // A large one goes alone.
    if (entries > 0 && size + head.FrameBytes() > most) break;
    size += head.FrameBytes();
    ++entries;
  }
  if (frames.Resize(size) == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " bytes of the log"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      const size_t read, ReadAt(segment_.get(), frames.data(), size, offset_));
  if (read != size) return absl::DataLossError("the log became shorter");
  offset_ += size;
  position_ += entries;
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
