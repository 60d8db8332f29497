// What a parameter server reads: messages of workers and primaries, its log, a
// snapshot. The first byte says which of them the rest is. Where a checksum
// would keep the fuzzer out, it is made right.
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/net/socket.h"
#include "fuzz.h"
#include "log_frame.h"
#include "server_state.h"
#include "snapshot.h"
#include "wire.h"

namespace elasticdl::ps {
namespace {

// So that no claim costs much.
constexpr ServerState::Options kOptions = {0, size_t{16} << 20};

// Bytes at a multiple of 8, as the readers get them.
class Aligned {
 public:
  explicit Aligned(absl::string_view bytes) {
    ELASTICDL_CHECK(bytes.empty() || buffer_.Resize(bytes.size()) != nullptr);
    if (!bytes.empty()) {
      std::memcpy(buffer_.data(), bytes.data(), bytes.size());
    }
  }
  absl::string_view view() const { return buffer_.view(); }

 private:
  Buffer buffer_;
};

void ReadFrames(absl::string_view bytes) {
  const Aligned aligned(bytes);
  absl::string_view rest = aligned.view();
  Frame frame;
  while (ParseFrame(rest, frame) == FrameResult::kOk) {
    ELASTICDL_CHECK(frame.whole.size() <= rest.size());
    ELASTICDL_CHECK(frame.header.size() + frame.payload.size() <
                    frame.whole.size());
    rest.remove_prefix(frame.whole.size());
  }
}

// uint32 bytes of an entry, the entry, uint32 bytes of its payload, the
// payload, and again: what passes Check must be applied without an error. Of a
// log, less is checked: that must not break anything.
void ApplyEntries(absl::string_view bytes, bool logged) {
  ServerState state(kOptions);
  while (bytes.size() > 8) {
    uint32_t sizes[2] = {};
    std::memcpy(sizes, bytes.data(), sizeof(sizes));
    bytes.remove_prefix(sizeof(sizes));
    const absl::string_view header = bytes.substr(0, sizes[0]);
    bytes.remove_prefix(header.size());
    const Aligned payload(bytes.substr(0, sizes[1]));
    bytes.remove_prefix(payload.view().size());
    v1::PsEntry entry;
    if (!entry.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      continue;
    }
    const FrameHead head = MakeFrameHead(1, header, payload.view());
    ELASTICDL_CHECK(head.head_crc == head.Checksum());
    if (logged) {
      if (!state.CheckLogged(entry, payload.view()).ok()) continue;
      if (!state.Apply(entry, payload.view()).ok()) return;
      continue;
    }
    if (!state.Check(entry, payload.view()).ok()) continue;
    ELASTICDL_CHECK(state.Apply(entry, payload.view()).ok());
  }
  state.Digest();
}

void OpenSnapshot(absl::string_view bytes) {
  std::string whole = absl::StrCat("EDLPSSN2", bytes);
  const uint32_t crc = Crc32c(whole);
  whole.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  const fuzz::MemoryFile file(whole);
  int64_t position = 0;
  const auto state = ReadSnapshot(file.path(), kOptions, position);
  if (state.ok()) state->Digest();
}

void Receive(absl::string_view bytes) {
  // Who is let in may claim gigabytes; the fuzzer would run out of them.
  for (size_t at = 11; at < 16 && at < bytes.size(); ++at) {
    if (bytes[at] != '\0') return;
  }
  int ends[2] = {-1, -1};
  ELASTICDL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) ==
                  0);
  net::Socket reader{Fd(ends[0])};
  {
    const Fd writer(ends[1]);
    // What does not fit into the socket is cut off.
    [[maybe_unused]] const ssize_t n =
        write(writer.get(), bytes.data(), bytes.size());
  }
  Buffer payload;
  v1::PsRequest request;
  while (ReadMessage(reader, request, payload, absl::Seconds(1)).ok()) {
  }
}

void Run(absl::string_view bytes) {
  if (bytes.empty()) return;
  const char what = bytes[0];
  bytes.remove_prefix(1);
  switch (what) {
    case 'f':
      return ReadFrames(bytes);
    case 'e':
      return ApplyEntries(bytes, /*logged=*/false);
    case 'l':
      return ApplyEntries(bytes, /*logged=*/true);
    case 's':
      return OpenSnapshot(bytes);
    case 'w':
      return Receive(bytes);
    default:
      return;
  }
}

}  // namespace
}  // namespace elasticdl::ps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::ps::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
