#include "snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "mapped_file.h"

namespace elasticdl::ps {
namespace {

constexpr absl::string_view kMagic = "EDLPSSN2";
constexpr char kZeros[8] = {};

size_t Padding(size_t bytes) { return (8 - bytes % 8) % 8; }

// Writes and sums up. Only system calls.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  void Write(const void* data, size_t size) {
    const absl::string_view rest(static_cast<const char*>(data), size);
    // Small pieces, such as rows, go out together.
    if (size <= sizeof(buffer_) - used_) {
      std::memcpy(buffer_ + used_, data, size);
      used_ += size;
      return;
    }
    Flush();
    WriteNow(rest);
  }
  bool failed() const { return error_ != 0; }
  int Finish() {
    Flush();
    const uint32_t crc = crc_;
    Write(&crc, sizeof(crc));
    Flush();
    if (error_ == 0 && fsync(fd_) != 0) error_ = errno;
    return error_;
  }

 private:
  void Flush() {
    WriteNow({buffer_, used_});
    used_ = 0;
  }
  void WriteNow(absl::string_view rest) {
    if (failed()) return;
    crc_ = ExtendCrc32c(crc_, rest);
    while (!rest.empty() && error_ == 0) {
      const ssize_t n = write(fd_, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error_ = errno;
      if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
    }
  }

  const int fd_;
  int error_ = 0;
  uint32_t crc_ = 0;
  size_t used_ = 0;
  char buffer_[1 << 16];
};

// Takes bytes off the front; null when there are too few.
const char* Take(absl::string_view& rest, size_t size) {
  if (rest.size() < size) return nullptr;
  const char* at = rest.data();
  rest.remove_prefix(size);
  return at;
}

bool TakeSightings(absl::string_view& rest, int bucket, EmbeddingTable& table) {
  uint64_t bytes = 0;
  const char* from = Take(rest, sizeof(bytes));
  if (from == nullptr) return false;
  std::memcpy(&bytes, from, sizeof(bytes));
  from = Take(rest, bytes);
  if (from == nullptr || !Sightings::IsValid({from, bytes})) return false;
  table.RestoreSightings(bucket, {from, bytes});
  return true;
}

}  // namespace

int WriteSnapshot(const std::string& path, const std::string& header,
                  const std::vector<absl::string_view>& payloads,
                  const ServerState& state) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  Output out(fd);
  const uint64_t size = header.size();
  out.Write(kMagic.data(), kMagic.size());
  out.Write(&size, sizeof(size));
  out.Write(header.data(), header.size());
  out.Write(kZeros, Padding(header.size()));
  for (const std::vector<float>& array : state.dense()) {
    out.Write(array.data(), array.size() * sizeof(float));
    out.Write(kZeros, Padding(array.size() * sizeof(float)));
  }
  // After an error nobody waits for the end: the file holds up a full disk.
  for (const auto& table : state.tables()) {
    for (int bucket = 0; bucket < kBuckets && !out.failed(); ++bucket) {
      table->ForEach(bucket, [&](int64_t id, const char* row) {
        out.Write(&id, sizeof(id));
        out.Write(row, table->row_bytes());
      });
    }
    for (int bucket = 0; table->counts() && bucket < kBuckets && !out.failed();
         ++bucket) {
      const absl::string_view sightings = table->sightings(bucket);
      const uint64_t bytes = sightings.size();
      out.Write(&bytes, sizeof(bytes));
      out.Write(sightings.data(), sightings.size());
    }
  }
  for (const absl::string_view payload : payloads) {
    out.Write(payload.data(), payload.size());
    out.Write(kZeros, Padding(payload.size()));
  }
  // Only tests arm it: nothing is locked.
  int error = Failpoint("ps.snapshot_end").ok() ? 0 : EIO;
  if (error == 0) error = out.Finish();
  if (error != 0) unlink(path.c_str());
  close(fd);
  return error;
}

absl::StatusOr<ServerState> ReadSnapshot(const std::string& path,
                                         ServerState::Options options,
                                         int64_t& log_position) {
  ELASTICDL_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  absl::string_view rest = file.view();
  const size_t size = rest.size();
  const auto bad = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(path, ": ", why));
  };
  if (size < kMagic.size() + sizeof(uint64_t) + sizeof(uint32_t)) {
    return bad("too short");
  }
  uint32_t crc = 0;
  std::memcpy(&crc, rest.data() + size - sizeof(crc), sizeof(crc));
  rest.remove_suffix(sizeof(crc));
  if (rest.substr(0, kMagic.size()) != kMagic) return bad("no snapshot");
  if (Crc32c(rest) != crc) return bad("wrong checksum");
  rest.remove_prefix(kMagic.size());
  uint64_t header_size = 0;
  std::memcpy(&header_size, Take(rest, sizeof(header_size)),
              sizeof(header_size));
  v1::PsSnapshot header;
  if (header_size > rest.size() ||
      !header.ParseFromArray(rest.data(), static_cast<int>(header_size)) ||
      Take(rest, header_size + Padding(header_size)) == nullptr) {
    return bad("no header");
  }
  log_position = header.log_position();
  // Memory is taken for these before they are read.
  uint64_t claimed = 0;
  for (const auto& staged : header.staged()) {
    if (staged.bytes() > rest.size()) return bad("payloads are missing");
    claimed += staged.bytes();
  }
  for (const auto& leaving : header.leaving()) {
    if (leaving.bytes() > rest.size()) return bad("payloads are missing");
    claimed += leaving.bytes();
  }
  if (claimed > rest.size()) return bad("payloads are missing");
  if (header.dense_values() > rest.size() / sizeof(float)) {
    return bad("values are missing");
  }
  absl::StatusOr<ServerState> state = ServerState::FromHeader(options, header);
  if (!state.ok()) return Annotate(state.status(), path);
  for (std::vector<float>& array : state->mutable_dense()) {
    const size_t bytes = array.size() * sizeof(float);
    const char* from = Take(rest, bytes + Padding(bytes));
    if (from == nullptr) return bad("values are missing");
    std::memcpy(array.data(), from, bytes);
  }
  for (size_t t = 0; t < state->tables().size(); ++t) {
    EmbeddingTable& table = *state->tables()[t];
    const uint64_t rows = header.tables(static_cast<int>(t)).rows();
    if (rows > rest.size() / table.record_bytes()) {
      return bad("rows are missing");
    }
    const absl::string_view records =
        rest.substr(0, rows * table.record_bytes());
    rest.remove_prefix(records.size());
    ELASTICDL_RETURN_IF_ERROR(Annotate(table.Restore(records), path));
    for (int bucket = 0; table.counts() && bucket < kBuckets; ++bucket) {
      if (!TakeSightings(rest, bucket, table)) return bad("no sightings");
    }
  }
  for (std::string* payload : state->mutable_payloads()) {
    const char* from = Take(rest, payload->size() + Padding(payload->size()));
    if (from == nullptr) return bad("payloads are missing");
    std::memcpy(payload->data(), from, payload->size());
  }
  if (!rest.empty()) return bad("bytes behind its end");
  return state;
}

}  // namespace elasticdl::ps
