#include "tar_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::docker {
namespace {

constexpr size_t kBlockBytes = 512;
// The largest size for the header's 11 octal digits: 8 GiB.
constexpr int64_t kMaxOctalSize = 077777777777;

// The ustar header (POSIX.1-1988), field by field.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char modified[12];
  char checksum[8];
  char type;
  char link_name[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char major[8];
  char minor[8];
  char prefix[155];
  char unused[12];
};
static_assert(sizeof(Header) == kBlockBytes);

template <size_t N>
void PutText(absl::string_view text, char (&field)[N]) {
  memcpy(field, text.data(), std::min(text.size(), N));
}

template <size_t N>
void PutOctal(int64_t value, char (&field)[N]) {
  for (size_t i = N - 1; i-- > 0;) {
    field[i] = static_cast<char>('0' + (value & 7));
    value >>= 3;
  }
}

std::string Padding(int64_t size) {
  const size_t rest = static_cast<size_t>(size) % kBlockBytes;
  return std::string(rest == 0 ? 0 : kBlockBytes - rest, '\0');
}

// Writes the name into `name` and `prefix`, without the '/' between them. False
// when it does not fit.
bool PutName(absl::string_view name, Header* header) {
  if (name.size() <= sizeof(header->name)) {
    PutText(name, header->name);
    return true;
  }
  // The first slash (not the one at a folder's end) after which the rest fits.
  for (size_t slash = name.find('/'); slash + 1 < name.size();
       slash = name.find('/', slash + 1)) {
    if (slash == name.npos || slash > sizeof(header->prefix)) break;
    if (name.size() - slash - 1 > sizeof(header->name) || slash == 0) continue;
    PutText(name.substr(0, slash), header->prefix);
    PutText(name.substr(slash + 1), header->name);
    return true;
  }
  PutText(name.substr(0, sizeof(header->name)), header->name);
  return false;
}

std::string Finish(Header header) {
  memset(header.checksum, ' ', sizeof(header.checksum));
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  int64_t sum = 0;
  for (size_t i = 0; i < kBlockBytes; ++i) sum += bytes[i];
  // Six digits, a zero, a space.
  char digits[7] = {};
  PutOctal(sum, digits);
  memcpy(header.checksum, digits, sizeof(digits));
  return std::string(reinterpret_cast<const char*>(&header), kBlockBytes);
}

Header NewHeader(char type, uint32_t mode, int64_t modified) {
  Header header;
  memset(&header, 0, sizeof(header));
  header.type = type;
  PutOctal(mode, header.mode);
  PutOctal(0, header.uid);
  PutOctal(0, header.gid);
  PutOctal(std::min(std::max<int64_t>(modified, 0), kMaxOctalSize),
           header.modified);
  PutText("ustar", header.magic);
  PutText("00", header.version);
  return header;
}

// "30 path=…\n": the length includes its own digits.
std::string PaxRecord(absl::string_view key, absl::string_view value) {
  const std::string rest = absl::StrCat(" ", key, "=", value, "\n");
  size_t size = rest.size() + 1;
  while (absl::StrCat(size).size() + rest.size() != size) {
    size = absl::StrCat(size).size() + rest.size();
  }
  return absl::StrCat(size, rest);
}

// A pax header that applies to the entry after it.
std::string PaxHeader(const std::string& records) {
  Header header = NewHeader('x', 0644, 0);
  PutText("PaxHeaders/entry", header.name);
  PutOctal(static_cast<int64_t>(records.size()), header.size);
  return absl::StrCat(Finish(header), records,
                      Padding(static_cast<int64_t>(records.size())));
}

char TypeFlag(ContextEntry::Type type) {
  switch (type) {
    case ContextEntry::Type::kFolder:
      return '5';
    case ContextEntry::Type::kLink:
      return '2';
    case ContextEntry::Type::kFile:
      break;
  }
  return '0';
}

}  // namespace

std::string TarHeader(const ContextEntry& entry, const TarOptions& options) {
  Header header = NewHeader(TypeFlag(entry.type), entry.mode,
                            options.with_times ? entry.modified : 0);
  std::string records;
  const bool folder = entry.type == ContextEntry::Type::kFolder;
  const std::string name = folder ? absl::StrCat(entry.name, "/") : entry.name;
  if (!PutName(name, &header)) records += PaxRecord("path", name);
  PutText(entry.target, header.link_name);
  if (entry.target.size() > sizeof(header.link_name)) {
    records += PaxRecord("linkpath", entry.target);
  }
  PutOctal(entry.size > kMaxOctalSize ? 0 : entry.size, header.size);
  if (entry.size > kMaxOctalSize) {
    records += PaxRecord("size", absl::StrCat(entry.size));
  }
  return records.empty() ? Finish(header)
                         : absl::StrCat(PaxHeader(records), Finish(header));
}

TarStream::TarStream(const std::vector<ContextEntry>& entries,
                     const TarOptions& options)
    : entries_(entries), options_(options) {}

absl::Status TarStream::NextEntry() {
  pending_at_ = 0;
  if (next_ == entries_.size()) {
    // The end is two empty blocks.
    pending_ = std::string(2 * kBlockBytes, '\0');
    ended_ = true;
    return absl::OkStatus();
  }
  const ContextEntry& entry = entries_[next_++];
  pending_ = TarHeader(entry, options_);
  if (entry.type != ContextEntry::Type::kFile) return absl::OkStatus();
  if (entry.path.empty()) {
    absl::StrAppend(&pending_, entry.content, Padding(entry.size));
    return absl::OkStatus();
  }
  // It was not a link when it was listed; O_NOFOLLOW refuses one now.
  file_.Reset(open(entry.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("build context: ", entry.path));
  }
  file_left_ = entry.size;
  return absl::OkStatus();
}

absl::StatusOr<size_t> TarStream::ReadFileData(char* buffer, size_t size) {
  const ContextEntry& entry = entries_[next_ - 1];
  size_t done = 0;
  const size_t wanted =
      static_cast<size_t>(std::min<int64_t>(file_left_, size));
  while (done == 0 && wanted > 0) {
    const ssize_t n = read(file_.get(), buffer, wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return ErrnoToStatus(errno, absl::StrCat("build context: ", entry.path));
    }
    if (n == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "build context: ", entry.path, " became shorter while it was sent"));
    }
    done = static_cast<size_t>(n);
  }
  file_left_ -= static_cast<int64_t>(done);
  if (file_left_ == 0) {
    file_.Reset();
    pending_ = Padding(entry.size);
    pending_at_ = 0;
  }
  return done;
}

absl::StatusOr<size_t> TarStream::Read(char* buffer, size_t size) {
  while (size > 0) {
    if (pending_at_ < pending_.size()) {
      const size_t n = std::min(size, pending_.size() - pending_at_);
      memcpy(buffer, pending_.data() + pending_at_, n);
      pending_at_ += n;
      return n;
    }
    if (file_.valid()) {
      ELASTICDL_ASSIGN_OR_RETURN(const size_t n, ReadFileData(buffer, size));
      if (n > 0) return n;
      continue;
    }
    if (ended_) return 0;
    ELASTICDL_RETURN_IF_ERROR(NextEntry());
  }
  return 0;
}

}  // namespace elasticdl::docker
