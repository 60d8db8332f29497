#include "wire.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::checkpoint::internal {
namespace {

enum WireType : uint32_t { kVarint = 0, kBytes = 2 };

constexpr uint32_t Tag(uint32_t field, WireType type) {
  return field << 3 | type;
}

void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Tag and length of a field whose bytes follow.
void AppendBytesHeader(std::string& out, uint32_t field, size_t size) {
  AppendVarint(out, Tag(field, kBytes));
  AppendVarint(out, size);
}

void AppendBytes(std::string& out, uint32_t field, absl::string_view bytes) {
  AppendBytesHeader(out, field, bytes.size());
  out.append(bytes.data(), bytes.size());
}

void AppendInt(std::string& out, uint32_t field, int64_t value) {
  AppendVarint(out, Tag(field, kVarint));
  AppendVarint(out, static_cast<uint64_t>(value));
}

std::string EncodeShape(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t size : shape) {
    std::string dim;
    AppendInt(dim, 1, size);
    AppendBytes(out, 2, dim);
  }
  return out;
}

}  // namespace

int64_t ExpectedBytes(const NamedTensor& tensor) {
  int64_t total = ElementBytes(tensor.dtype);
  if (total == 0) return -1;
  for (const int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(total, size, &total)) return -1;
  }
  return total;
}

std::string EncodeModelVersion(int64_t version) {
  std::string out;
  AppendInt(out, 1, version);
  return out;
}

std::string EncodeTensorHeader(const NamedTensor& tensor) {
  // From the inside out, because each length includes those inside it.
  std::string inner;
  AppendInt(inner, 1, tensor.dtype);
  AppendBytes(inner, 2, EncodeShape(tensor.shape));
  AppendBytesHeader(inner, 4, tensor.bytes.size());
  std::string entry;
  AppendBytes(entry, 1, tensor.name);
  AppendBytesHeader(entry, 2, inner.size() + tensor.bytes.size());
  std::string out;
  AppendBytesHeader(out, 3, entry.size() + inner.size() + tensor.bytes.size());
  return absl::StrCat(out, entry, inner);
}

std::string EncodeTableInfo(const TableRows& table) {
  std::string info;
  AppendBytes(info, 1, table.name);
  AppendInt(info, 2, table.dim);
  if (!table.initializer.empty()) AppendBytes(info, 3, table.initializer);
  AppendInt(info, 4, v1::DT_FLOAT);
  std::string out;
  AppendBytes(out, 2, info);
  return out;
}

std::string EncodeRowsHeader(absl::string_view name, int64_t rows, int64_t dim,
                             int64_t id_bytes, v1::DataType dtype) {
  const size_t content = static_cast<size_t>(rows) * static_cast<size_t>(dim) *
                         static_cast<size_t>(ElementBytes(dtype));
  const size_t ids =
      EncodeIdsHeader(id_bytes).size() + static_cast<size_t>(id_bytes);
  // From the inside out, as above.
  std::string tensor;
  AppendInt(tensor, 1, dtype);
  AppendBytes(tensor, 2, EncodeShape({rows, dim}));
  AppendBytesHeader(tensor, 4, content);
  std::string slices;
  AppendBytesHeader(slices, 1, tensor.size() + content);
  const size_t inner = slices.size() + tensor.size() + content + ids;
  std::string entry;
  AppendBytes(entry, 1, name);
  AppendBytesHeader(entry, 2, inner);
  std::string out;
  AppendBytesHeader(out, 4, entry.size() + inner);
  return absl::StrCat(out, entry, slices, tensor);
}

int64_t EncodedIdBytes(absl::Span<const int64_t> ids) {
  int64_t bytes = 0;
  for (const int64_t id : ids) {
    // 7 bits in each byte.
    const int bits = 64 - __builtin_clzll(static_cast<uint64_t>(id) | 1);
    bytes += (bits + 6) / 7;
  }
  return bytes;
}

std::string EncodeIdsHeader(int64_t id_bytes) {
  std::string out;
  if (id_bytes > 0) AppendBytesHeader(out, 2, static_cast<size_t>(id_bytes));
  return out;
}

void AppendIds(absl::Span<const int64_t> ids, std::string& out) {
  for (const int64_t id : ids) AppendVarint(out, static_cast<uint64_t>(id));
}

}  // namespace elasticdl::checkpoint::internal
