#include "wire.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::checkpoint::internal {
namespace {

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kFixed32 = 5
};

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

// One field of a message: `value` of a varint or fixed one, `bytes` of others.
struct Field {
  uint32_t number = 0;
  WireType type = kVarint;
  uint64_t value = 0;
  absl::string_view bytes;
};

// Walks over the fields of a message. Thread-compatible.
class FieldReader {
 public:
  explicit FieldReader(absl::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }
  // The current offset.
  const char* position() const { return rest_.data(); }

  // False if the bytes are not a valid message.
  bool Next(Field& field) {
    uint64_t tag = 0;
    if (!ReadVarint(tag) || tag > std::numeric_limits<uint32_t>::max()) {
      return false;
    }
    field.number = static_cast<uint32_t>(tag) >> 3;
    field.type = static_cast<WireType>(tag & 7);
    switch (field.type) {
      case kVarint:
        return field.number != 0 && ReadVarint(field.value);
      case kFixed64:
        return field.number != 0 && Skip(8);
      case kFixed32:
        return field.number != 0 && Skip(4);
      case kBytes: {
        uint64_t size = 0;
        if (field.number == 0 || !ReadVarint(size) || size > rest_.size()) {
          return false;
        }
        field.bytes = rest_.substr(0, size);
        return Skip(size);
      }
    }
    return false;
  }

  bool ReadVarint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const uint8_t byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

 private:
  bool Skip(size_t size) {
    if (size > rest_.size()) return false;
    rest_.remove_prefix(size);
    return true;
  }

  absl::string_view rest_;
};

// Parses one file; the members are used in error messages.
class ModelParser {
 public:
  ModelParser(absl::string_view bytes, absl::string_view path)
      : bytes_(bytes), path_(path) {}

  absl::StatusOr<ModelView> Parse() {
    ModelView model;
    FieldReader reader(bytes_);
    while (!reader.done()) {
      const char* const at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "not an encoded Model");
      if (field.number == 1 && field.type == kVarint) {
        model.version = static_cast<int64_t>(field.value);
      } else if (field.number == 3 && field.type == kBytes) {
        NamedTensor tensor;
        ELASTICDL_RETURN_IF_ERROR(ParseDense(field.bytes, tensor));
        model.dense_parameters.push_back(std::move(tensor));
      } else if (field.number == 4 && field.type == kBytes) {
        EmbeddingRows rows;
        ELASTICDL_RETURN_IF_ERROR(ParseEmbedding(field.bytes, rows));
        model.embedding_tables.push_back(std::move(rows));
      }
    }
    return model;
  }

 private:
  absl::Status Bad(const char* at, absl::string_view why) const {
    return absl::DataLossError(absl::StrCat("read ", path_, ": offset ",
                                            at - bytes_.data(), ": ", why));
  }

  // Splits a map entry into its key and value.
  absl::Status ParseEntry(absl::string_view entry, std::string& key,
                          absl::string_view& value) const {
    FieldReader reader(entry);
    while (!reader.done()) {
      const char* const at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad map entry");
      if (field.type != kBytes) continue;
      if (field.number == 1) key = std::string(field.bytes);
      if (field.number == 2) value = field.bytes;
    }
    return absl::OkStatus();
  }

  absl::Status ParseDense(absl::string_view entry, NamedTensor& tensor) const {
    absl::string_view value = entry.substr(0, 0);
    ELASTICDL_RETURN_IF_ERROR(ParseEntry(entry, tensor.name, value));
    return ParseTensor(value, tensor);
  }

  absl::Status ParseTensor(absl::string_view bytes, NamedTensor& tensor) const {
    tensor.dtype = v1::DT_INVALID;
    FieldReader reader(bytes);
    while (!reader.done()) {
      const char* const at = reader.position();
      Field field;
      if (!reader.Next(field)) {
        return Bad(at, absl::StrCat("tensor '", tensor.name, "': bad field"));
      }
      if (field.number == 1 && field.type == kVarint) {
        tensor.dtype = static_cast<v1::DataType>(
            static_cast<int32_t>(static_cast<uint32_t>(field.value)));
      } else if (field.number == 2 && field.type == kBytes) {
        ELASTICDL_RETURN_IF_ERROR(ParseShape(field.bytes, tensor));
      } else if (field.number == 4 && field.type == kBytes) {
        tensor.bytes =
            absl::MakeConstSpan(field.bytes.data(), field.bytes.size());
      }
    }
    const int64_t expected = ExpectedBytes(tensor);
    if (expected < 0 || expected != static_cast<int64_t>(tensor.bytes.size())) {
      return Bad(bytes.data(), absl::StrCat("tensor ", Describe(tensor),
                                            " has ", tensor.bytes.size(),
                                            " bytes instead of ", expected));
    }
    return absl::OkStatus();
  }

  absl::Status ParseShape(absl::string_view bytes, NamedTensor& tensor) const {
    FieldReader reader(bytes);
    while (!reader.done()) {
      const char* const at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad tensor_shape");
      if (field.number != 2 || field.type != kBytes) continue;
      // A dimension of size 0 has no bytes.
      int64_t size = 0;
      FieldReader dim(field.bytes);
      while (!dim.done()) {
        Field part;
        if (!dim.Next(part)) return Bad(at, "bad dimension");
        if (part.number == 1 && part.type == kVarint) {
          size = static_cast<int64_t>(part.value);
        }
      }
      tensor.shape.push_back(size);
    }
    return absl::OkStatus();
  }

  absl::Status ParseEmbedding(absl::string_view entry,
                              EmbeddingRows& rows) const {
    absl::string_view value = entry.substr(0, 0);
    ELASTICDL_RETURN_IF_ERROR(ParseEntry(entry, rows.name, value));
    rows.rows.name = rows.name;
    FieldReader reader(value);
    while (!reader.done()) {
      const char* const at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad embedding table");
      if (field.number == 1 && field.type == kBytes) {
        ELASTICDL_RETURN_IF_ERROR(ParseTensor(field.bytes, rows.rows));
      } else if (field.number == 2 && field.type == kVarint) {
        rows.ids.push_back(static_cast<int64_t>(field.value));
      } else if (field.number == 2 && field.type == kBytes) {
        FieldReader packed(field.bytes);
        while (!packed.done()) {
          uint64_t id = 0;
          if (!packed.ReadVarint(id)) return Bad(at, "bad embedding ids");
          rows.ids.push_back(static_cast<int64_t>(id));
        }
      }
    }
    const std::vector<int64_t>& shape = rows.rows.shape;
    if (!rows.ids.empty() &&
        (shape.size() != 2 ||
         shape[0] != static_cast<int64_t>(rows.ids.size()))) {
      return Bad(entry.data(),
                 absl::StrCat("embedding table ", Describe(rows.rows), " has ",
                              rows.ids.size(), " ids"));
    }
    return absl::OkStatus();
  }

  const absl::string_view bytes_;
  const absl::string_view path_;
};

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

absl::StatusOr<ModelView> ParseModel(absl::string_view bytes,
                                     absl::string_view path) {
  return ModelParser(bytes, path).Parse();
}

}  // namespace elasticdl::checkpoint::internal
