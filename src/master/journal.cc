#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::master {
namespace {

constexpr absl::string_view kMagic = "EDLJRNL1";

struct Header {
  uint32_t length = 0;
  uint32_t crc = 0;
  // Of the two above: a length that cannot be trusted would hide what follows.
  uint32_t header_crc = 0;

  uint32_t Checksum() const {
    return Crc32c({reinterpret_cast<const char*>(this), 2 * sizeof(uint32_t)});
  }
};
static_assert(sizeof(Header) == 12, "three little-endian words");

// Where the good records end.
absl::StatusOr<size_t> Parse(const std::string& path, absl::string_view file,
                             std::vector<v1::JournalRecord>& records) {
  if (file.substr(0, kMagic.size()) != kMagic) {
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

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(
    const std::string& path, std::vector<v1::JournalRecord>& replay) {
  replay.clear();
  std::string file;
  if (FileExists(path)) {
    ELASTICDL_ASSIGN_OR_RETURN(file, ReadFile(path));
  }
  size_t good = 0;
  // A crash may have come before the first bytes were complete.
  if (file.size() >= kMagic.size()) {
    ELASTICDL_ASSIGN_OR_RETURN(good, Parse(path, file, replay));
  }
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  if (good < file.size()) {
    LogWarning(path, ": dropped ", file.size() - good,
               " bytes of a record that was not complete");
    if (ftruncate(fd.get(), static_cast<off_t>(good)) != 0) {
      return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
    }
  }
  if (good == 0) {
    ELASTICDL_RETURN_IF_ERROR(WriteAll(fd.get(), kMagic, path));
  }
  return std::unique_ptr<Journal>(new Journal(path, std::move(fd)));
}

absl::Status Journal::Append(const v1::JournalRecord& record) {
  const std::string bytes = record.SerializeAsString();
  Header header = {static_cast<uint32_t>(bytes.size()), Crc32c(bytes)};
  header.header_crc = header.Checksum();
  std::string framed(sizeof(header), '\0');
  std::memcpy(framed.data(), &header, sizeof(header));
  framed += bytes;
  return WriteAll(fd_.get(), framed, path_);
}

}  // namespace elasticdl::master
