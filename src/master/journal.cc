#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

constexpr absl::string_view kMagic = "EDLJRNL1";
constexpr absl::string_view kIncomplete = "EDLJRNLX";
// Shorter journals are not replaced. Longer ones are replaced when they have
// grown by this factor, so that replacing is a small part of all writing.
constexpr int64_t kShortBytes = 256 << 10;
constexpr int64_t kGrowth = 4;

struct Header {
  uint32_t length = 0;
  uint32_t crc = 0;
  // Of the two fields above: a wrong length would hide the following records.
  uint32_t header_crc = 0;

  uint32_t Checksum() const {
    return Crc32c({reinterpret_cast<const char*>(this), 2 * sizeof(uint32_t)});
  }
};
static_assert(sizeof(Header) == 12, "three little-endian words");

// Where the good records end.
absl::StatusOr<size_t> Parse(const std::string& path, absl::string_view file,
                             std::vector<v1::JournalRecord>& records) {
  const absl::string_view magic = file.substr(0, kMagic.size());
  if (magic != kMagic && magic != kIncomplete) {
    return absl::DataLossError(absl::StrCat(path, " is no journal"));
  }
  size_t at = kMagic.size();
  while (file.size() - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, file.data() + at, sizeof(header));
    const absl::string_view rest = file.substr(at + sizeof(header));
    const bool trusted = header.header_crc == header.Checksum();
    // Half of the last write.
    if (trusted && rest.size() < header.length) break;
    const absl::string_view bytes = rest.substr(0, header.length);
    v1::JournalRecord record;
    if (!trusted || Crc32c(bytes) != header.crc ||
        !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::DataLossError(
          absl::StrCat(path, ": bad record at offset ", at));
    }
    records.push_back(std::move(record));
    at += sizeof(header) + header.length;
  }
  return at;
}

std::string Frame(const v1::JournalRecord& record) {
  const std::string bytes = record.SerializeAsString();
  Header header = {static_cast<uint32_t>(bytes.size()), Crc32c(bytes)};
  header.header_crc = header.Checksum();
  std::string framed(sizeof(header), '\0');
  std::memcpy(framed.data(), &header, sizeof(header));
  return framed + bytes;
}

absl::Status WriteAt(int fd, absl::string_view data, int64_t at,
                     const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = pwrite(fd, data.data(), data.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, absl::StrCat("write ", path));
    data.remove_prefix(static_cast<size_t>(n));
    at += n;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(
    const std::string& path, std::vector<v1::JournalRecord>& replay) {
  replay.clear();
  std::string file;
  if (FileExists(path)) {
    ELASTICDL_ASSIGN_OR_RETURN(file, ReadFile(path));
  }
  size_t good = 0;
  // A crash may have left an incomplete header.
  if (file.size() >= kMagic.size()) {
    ELASTICDL_ASSIGN_OR_RETURN(good, Parse(path, file, replay));
  }
  // Not O_APPEND: the rest of a failed write is overwritten.
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  if (good < file.size()) {
    LogWarning(path, ": dropped ", file.size() - good,
               " bytes of a record that was not complete");
    if (ftruncate(fd.get(), static_cast<off_t>(good)) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
    }
  }
  if (good == 0) {
    ELASTICDL_RETURN_IF_ERROR(WriteAt(fd.get(), kMagic, 0, path));
    good = kMagic.size();
  }
  std::unique_ptr<Journal> journal(new Journal(path, std::move(fd)));
  journal->bytes_ = static_cast<int64_t>(good);
  journal->complete_ = !absl::StartsWith(file, kIncomplete);
  return journal;
}

absl::Status Journal::Append(const v1::JournalRecord& record) {
  if (!complete_) {
    return absl::DataLossError(absl::StrCat(path_, " is not complete"));
  }
  const std::string framed = Frame(record);
  absl::Status status = WriteAt(fd_.get(), framed, bytes_, path_);
  if (!status.ok()) {
    MarkIncomplete();
    return status;
  }
  bytes_ += static_cast<int64_t>(framed.size());
  return absl::OkStatus();
}

void Journal::MarkIncomplete() {
  complete_ = false;
  // Both need no space. Without the first, half a record is dropped when the
  // file is read; without the second, only Replace in time helps.
  if (ftruncate(fd_.get(), bytes_) != 0) {
    LogWarning("truncate ", path_, ": ", std::strerror(errno));
  }
  const absl::Status marked = WriteAt(fd_.get(), kIncomplete, 0, path_);
  if (!marked.ok()) LogError(marked.message());
}

absl::Status Journal::Replace(const std::vector<v1::JournalRecord>& records) {
  const std::string temporary = absl::StrCat(path_, ".new");
  std::string data(kMagic);
  for (const v1::JournalRecord& record : records) data += Frame(record);
  Fd fd(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", temporary));
  }
  absl::Status status = WriteAt(fd.get(), data, 0, temporary);
  if (status.ok() && rename(temporary.c_str(), path_.c_str()) != 0) {
    status = ErrnoToStatus(errno, absl::StrCat("rename to ", path_));
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  fd_ = std::move(fd);
  bytes_ = least_bytes_ = static_cast<int64_t>(data.size());
  complete_ = true;
  return absl::OkStatus();
}

bool Journal::WantsReplace() const {
  return !complete_ ||
         (bytes_ > kShortBytes && bytes_ > kGrowth * least_bytes_);
}

}  // namespace elasticdl::master
