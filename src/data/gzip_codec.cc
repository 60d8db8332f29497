// Gzip streams over zlib.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compression.h"
#include "elasticdl/common/status.h"

namespace elasticdl::data::internal {
namespace {

constexpr int kGzipWindowBits = 15 + 16;
// Deflate cannot expand more than this.
constexpr uint64_t kMaxGzipExpansion = 1032;
constexpr size_t kMinOutputBytes = 4096;

// Ends an inflate or deflate stream.
struct Inflate {
  z_stream stream{};
  ~Inflate() { inflateEnd(&stream); }
};
struct Deflate {
  z_stream stream{};
  ~Deflate() { deflateEnd(&stream); }
};

// A last gzip member ends with its size modulo 2^32: a good first guess.
size_t GuessSize(absl::string_view data) {
  uint32_t size = 0;
  if (data.size() >= sizeof(size)) {
    std::memcpy(&size, data.data() + data.size() - sizeof(size), sizeof(size));
  }
  // If it is damaged, no more than the data can fill.
  return std::max<uint64_t>(
      kMinOutputBytes,
      std::min<uint64_t>(size, data.size() * kMaxGzipExpansion));
}

// Output that grows; the bytes so far move along.
class Output {
 public:
  Output(size_t capacity, BufferPool& pool)
      : pool_(pool), memory_(pool.Get(capacity)), capacity_(capacity) {}
  bool Grow() {
    if (capacity_ >= kMaxDecompressedBytes) return false;
    std::shared_ptr<char> larger = pool_.Get(capacity_ * 2);
    std::memcpy(larger.get(), memory_.get(), size_);
    memory_ = std::move(larger);
    capacity_ *= 2;
    return true;
  }
  char* end() { return memory_.get() + size_; }
  size_t room() const { return capacity_ - size_; }
  void Advance(size_t bytes) { size_ += bytes; }
  PooledBytes Take() {
    return PooledBytes{absl::string_view(memory_.get(), size_), memory_};
  }

 private:
  BufferPool& pool_;
  std::shared_ptr<char> memory_;
  size_t capacity_;
  size_t size_ = 0;
};

absl::Status BadGzip(const z_stream& stream, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("gzip stream: ",
                   stream.msg != nullptr ? absl::string_view(stream.msg) : what,
                   " at payload byte ", stream.total_in));
}

// Runs inflate until the input is used up at the end of a member.
absl::Status InflateAll(z_stream& stream, Output& output) {
  while (true) {
    if (output.room() == 0 && !output.Grow()) {
      return BadGzip(stream, "more than 2 GiB");
    }
    // zlib counts in 32 bits.
    const size_t room = std::min<size_t>(output.room(), 1U << 30);
    stream.next_out = reinterpret_cast<Bytef*>(output.end());
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    output.Advance(room - stream.avail_out);
    if (result == Z_STREAM_END) {
      if (stream.avail_in == 0) return absl::OkStatus();
      // Files that were put together with cat have several members.
      if (inflateReset(&stream) != Z_OK) return BadGzip(stream, "reset failed");
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return BadGzip(stream, "corrupt");
    } else if (stream.avail_out != 0 && stream.avail_in == 0) {
      return BadGzip(stream, "truncated");
    }
  }
}

}  // namespace

absl::StatusOr<PooledBytes> GzipDecode(absl::string_view data,
                                       BufferPool& pool) {
  if (data.size() > std::numeric_limits<uInt>::max()) {
    return absl::DataLossError("gzip stream: more than 4 GiB compressed");
  }
  Inflate inflate;
  if (inflateInit2(&inflate.stream, kGzipWindowBits) != Z_OK) {
    return absl::ResourceExhaustedError("gzip stream: no memory");
  }
  inflate.stream.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  inflate.stream.avail_in = static_cast<uInt>(data.size());
  Output output(GuessSize(data), pool);
  ELASTICDL_RETURN_IF_ERROR(InflateAll(inflate.stream, output));
  return output.Take();
}

absl::Status GzipEncode(absl::string_view data, std::string& out) {
  if (data.size() > std::numeric_limits<uInt>::max()) {
    return absl::InvalidArgumentError("gzip: more than 4 GiB in one chunk");
  }
  Deflate deflate_stream;
  z_stream& stream = deflate_stream.stream;
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindowBits,
                   8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("gzip: no memory");
  }
  const size_t start = out.size();
  out.resize(start + deflateBound(&stream, data.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(&out[start]);
  stream.avail_out = static_cast<uInt>(out.size() - start);
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
    return absl::InternalError("gzip: deflate did not finish");
  }
  out.resize(start + stream.total_out);
  return absl::OkStatus();
}

}  // namespace elasticdl::data::internal
