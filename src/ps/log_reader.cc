#include "log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"
#include "log_frame.h"

namespace elasticdl::ps {
namespace {

// How many bytes there were: up to `size`, 0 at the end of the file.
absl::StatusOr<size_t> ReadSome(int fd, char* to, size_t size,
                                uint64_t offset) {
  ssize_t n = 0;
  do {
    n = pread(fd, to, size, static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return ErrnoToStatus(errno, "read a log");
  return static_cast<size_t>(n);
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
  for (size_t done = 0; done < size;) {
    ELASTICDL_ASSIGN_OR_RETURN(const size_t read,
                               ReadSome(snapshot_.get(), piece.data() + done,
                                        size - done, snapshot_at_ + done));
    if (read == 0) return absl::DataLossError("a snapshot became shorter");
    done += read;
  }
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
  size_t wanted = std::max(most, sizeof(FrameHead));
  while (position_ < end) {
    const size_t asked = wanted;
    if (frames.Resize(asked) == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for ", asked, " bytes of the log"));
    }
    // Most often this is all there is; the last frame may be cut off, or be
    // written just now.
    ELASTICDL_ASSIGN_OR_RETURN(
        const size_t read,
        ReadSome(segment_.get(), frames.data(), asked, offset_));
    if (read == 0) {
      // The entries go on in the next file.
      if (offset_ == 0) return absl::DataLossError("an empty log");
      ELASTICDL_RETURN_IF_ERROR(OpenSegment());
      continue;
    }
    ELASTICDL_ASSIGN_OR_RETURN(const size_t size,
                               TakeWhole({frames.data(), read}, end, wanted));
    frames.Shrink(size);
    if (size > 0) return absl::OkStatus();
    // All entries below `end` are written.
    if (read < asked) return absl::DataLossError("the log became shorter");
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> LogReader::TakeWhole(absl::string_view bytes,
                                            int64_t end, size_t& wanted) {
  size_t size = 0;
  int64_t entries = 0;
  while (position_ + entries < end) {
    FrameHead head;
    if (bytes.size() - size < sizeof(head)) break;
    std::memcpy(&head, bytes.data() + size, sizeof(head));
    if (head.head_crc != head.Checksum() || head.TooLong() ||
        head.number != static_cast<uint64_t>(position_ + entries)) {
      return absl::DataLossError("the log has a bad entry");
    }
    if (bytes.size() - size < head.FrameBytes()) {
      // A large one goes alone.
      wanted = std::max<size_t>(wanted, head.FrameBytes());
      break;
    }
    size += head.FrameBytes();
    ++entries;
  }
  offset_ += size;
  position_ += entries;
  return size;
}

void LogReader::Skip(uint64_t bytes) {
  ++position_;
  offset_ += bytes;
}

}  // namespace elasticdl::ps
