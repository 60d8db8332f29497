// Reading: finds the tensors of an encoded Model.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "wire.h"

namespace elasticdl::checkpoint::internal {
namespace {

constexpr int64_t kMaxVarintBytes = 10;
// No name is as long; a damaged length would have to be read.
constexpr int64_t kMaxNameBytes = 1 << 20;

enum FieldType : uint32_t {
  kVarintField = 0,
  kFixed64Field = 1,
  kBytesField = 2,
  kFixed32Field = 5
};

// The first varint of `bytes`: its size, or 0 if there is none.
size_t DecodeVarint(absl::string_view bytes, uint64_t& value) {
  value = 0;
  const size_t most =
      std::min(bytes.size(), static_cast<size_t>(kMaxVarintBytes));
  for (size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) return i + 1;
  }
  return 0;
}

// One field of a message: `value` of a varint, `bytes` of others.
struct Field {
  uint32_t number = 0;
  FieldType type = kVarintField;
  uint64_t value = 0;
  // Of a varint, too.
  Range bytes;
};

// Walks over the fields of a message. Thread-compatible.
class FieldReader {
 public:
  FieldReader(ByteSource& source, const Range& message)
      : source_(source),
        at_(message.offset),
        end_(message.offset + message.size) {}

  bool done() const { return at_ >= end_; }
  int64_t position() const { return at_; }

  // False if the bytes are not a valid message, or cannot be read.
  bool Next(Field& field) {
    uint64_t tag = 0;
    if (!ReadVarint(tag) || tag > std::numeric_limits<uint32_t>::max()) {
      return false;
    }
    field.number = static_cast<uint32_t>(tag) >> 3;
    field.type = static_cast<FieldType>(tag & 7);
    field.bytes.offset = at_;
    uint64_t size = 0;
    switch (field.type) {
      case kVarintField:
        if (!ReadVarint(field.value)) return false;
        field.bytes.size = at_ - field.bytes.offset;
        return field.number != 0;
      case kFixed64Field:
        return field.number != 0 && Skip(8);
      case kFixed32Field:
        return field.number != 0 && Skip(4);
      case kBytesField:
        if (field.number == 0 || !ReadVarint(size)) return false;
        field.bytes = {at_, static_cast<int64_t>(size)};
        return Skip(size);
    }
    return false;
  }

 private:
  bool ReadVarint(uint64_t& value) {
    const int64_t most = std::min(kMaxVarintBytes, end_ - at_);
    if (most <= 0) return false;
    const size_t size = DecodeVarint(source_.At(at_, most), value);
    at_ += static_cast<int64_t>(size);
    return size > 0;
  }

  bool Skip(uint64_t size) {
    if (size > static_cast<uint64_t>(end_ - at_)) return false;
    at_ += static_cast<int64_t>(size);
    return true;
  }

  ByteSource& source_;
  int64_t at_;
  const int64_t end_;
};

// Indexes one file; the members are used in error messages.
class ModelIndexer {
 public:
  ModelIndexer(ByteSource& source, absl::string_view path)
      : source_(source), path_(path) {}

  absl::StatusOr<ModelIndex> Index() {
    ModelIndex model;
    FieldReader reader(source_, {0, source_.size()});
    while (!reader.done()) {
      const int64_t at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "not an encoded Model");
      if (field.number == 1 && field.type == kVarintField) {
        model.version = static_cast<int64_t>(field.value);
      } else if (field.number == 3 && field.type == kBytesField) {
        ELASTICDL_RETURN_IF_ERROR(
            IndexDense(field.bytes, model.dense_parameters.emplace_back()));
      } else if (field.number == 4 && field.type == kBytesField) {
        ELASTICDL_RETURN_IF_ERROR(
            IndexTable(field.bytes, model.embedding_tables.emplace_back()));
      }
    }
    return model;
  }

 private:
  absl::Status Bad(int64_t at, absl::string_view why) const {
    absl::Status read = source_.status();
    if (!read.ok()) return read;
    return absl::DataLossError(
        absl::StrCat("read ", path_, ": offset ", at, ": ", why));
  }

  absl::Status ReadName(const Range& from, std::string& name) {
    if (from.size > kMaxNameBytes) return Bad(from.offset, "bad name");
    name.clear();
    while (static_cast<int64_t>(name.size()) < from.size) {
      const auto used = static_cast<int64_t>(name.size());
      const absl::string_view part =
          source_.At(from.offset + used,
                     std::min(ByteSource::kMostAtOnce, from.size - used));
      if (part.empty()) return Bad(from.offset + used, "bad name");
      name.append(part.data(), part.size());
    }
    return absl::OkStatus();
  }

  // Splits a map entry into its key and value.
  absl::Status ReadEntry(const Range& entry, std::string& key, Range& value) {
    value = {entry.offset, 0};
    FieldReader reader(source_, entry);
    while (!reader.done()) {
      const int64_t at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad map entry");
      if (field.type != kBytesField) continue;
      if (field.number == 1) {
        ELASTICDL_RETURN_IF_ERROR(ReadName(field.bytes, key));
      }
      if (field.number == 2) value = field.bytes;
    }
    return absl::OkStatus();
  }

  absl::Status IndexDense(const Range& entry, ModelIndex::Tensor& out) {
    Range value;
    ELASTICDL_RETURN_IF_ERROR(ReadEntry(entry, out.tensor.name, value));
    return IndexTensor(value, out.tensor, out.content);
  }

  absl::Status IndexTensor(const Range& message, NamedTensor& tensor,
                           Range& content) {
    tensor.dtype = v1::DT_INVALID;
    FieldReader reader(source_, message);
    while (!reader.done()) {
      const int64_t at = reader.position();
      Field field;
      if (!reader.Next(field)) {
        return Bad(at, absl::StrCat("tensor '", tensor.name, "': bad field"));
      }
      if (field.number == 1 && field.type == kVarintField) {
        tensor.dtype = static_cast<v1::DataType>(
            static_cast<int32_t>(static_cast<uint32_t>(field.value)));
      } else if (field.number == 2 && field.type == kBytesField) {
        ELASTICDL_RETURN_IF_ERROR(ReadShape(field.bytes, tensor));
      } else if (field.number == 4 && field.type == kBytesField) {
        content = field.bytes;
      }
    }
    const int64_t expected = ExpectedBytes(tensor);
    if (expected < 0 || expected != content.size) {
      return Bad(message.offset,
                 absl::StrCat("tensor ", Describe(tensor), " has ",
                              content.size, " bytes instead of ", expected));
    }
    return absl::OkStatus();
  }

  absl::Status ReadShape(const Range& message, NamedTensor& tensor) {
    FieldReader reader(source_, message);
    while (!reader.done()) {
      const int64_t at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad tensor_shape");
      if (field.number != 2 || field.type != kBytesField) continue;
      // A dimension of size 0 has no bytes.
      int64_t size = 0;
      FieldReader dim(source_, field.bytes);
      while (!dim.done()) {
        Field part;
        if (!dim.Next(part)) return Bad(at, "bad dimension");
        if (part.number == 1 && part.type == kVarintField) {
          size = static_cast<int64_t>(part.value);
        }
      }
      tensor.shape.push_back(size);
    }
    return absl::OkStatus();
  }

  absl::Status IndexTable(const Range& entry, ModelIndex::Table& out) {
    Range value;
    ELASTICDL_RETURN_IF_ERROR(ReadEntry(entry, out.rows.name, value));
    FieldReader reader(source_, value);
    while (!reader.done()) {
      const int64_t at = reader.position();
      Field field;
      if (!reader.Next(field)) return Bad(at, "bad embedding table");
      if (field.number == 1 && field.type == kBytesField) {
        ELASTICDL_RETURN_IF_ERROR(
            IndexTensor(field.bytes, out.rows, out.content));
      } else if (field.number == 2 &&
                 (field.type == kVarintField || field.type == kBytesField)) {
        // A single one is encoded like one in a list.
        out.ids.push_back(field.bytes);
      }
    }
    return absl::OkStatus();
  }

  ByteSource& source_;
  const absl::string_view path_;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(absl::string_view bytes) : bytes_(bytes) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  absl::string_view At(int64_t offset, int64_t size) override {
    return bytes_.substr(static_cast<size_t>(offset),
                         static_cast<size_t>(size));
  }

 private:
  const absl::string_view bytes_;
};

}  // namespace

absl::StatusOr<ModelIndex> IndexModel(ByteSource& source,
                                      absl::string_view path) {
  return ModelIndexer(source, path).Index();
}

absl::Status AddIds(absl::string_view encoded, absl::string_view path,
                    EmbeddingRows& rows) {
  while (!encoded.empty()) {
    uint64_t id = 0;
    const size_t size = DecodeVarint(encoded, id);
    if (size == 0) {
      return absl::DataLossError(absl::StrCat(
          "read ", path, ": embedding table ", rows.name, ": bad ids"));
    }
    rows.ids.push_back(static_cast<int64_t>(id));
    encoded.remove_prefix(size);
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const EmbeddingRows& rows, absl::string_view path) {
  const std::vector<int64_t>& shape = rows.rows.shape;
  if (rows.ids.empty() || (shape.size() == 2 &&
                           shape[0] == static_cast<int64_t>(rows.ids.size()))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("read ", path, ": embedding table ",
                                          Describe(rows.rows), " has ",
                                          rows.ids.size(), " ids"));
}

absl::StatusOr<ModelView> ParseModel(absl::string_view bytes,
                                     absl::string_view path) {
  MemorySource source(bytes);
  ELASTICDL_ASSIGN_OR_RETURN(ModelIndex index, IndexModel(source, path));
  const auto view = [bytes](const Range& range) {
    return bytes.substr(static_cast<size_t>(range.offset),
                        static_cast<size_t>(range.size));
  };
  ModelView model;
  model.version = index.version;
  for (ModelIndex::Tensor& from : index.dense_parameters) {
    const absl::string_view content = view(from.content);
    from.tensor.bytes = absl::MakeConstSpan(content.data(), content.size());
    model.dense_parameters.push_back(std::move(from.tensor));
  }
  for (ModelIndex::Table& from : index.embedding_tables) {
    EmbeddingRows& rows = model.embedding_tables.emplace_back();
    const absl::string_view content = view(from.content);
    rows.name = from.rows.name;
    rows.rows = std::move(from.rows);
    rows.rows.bytes = absl::MakeConstSpan(content.data(), content.size());
    for (const Range& ids : from.ids) {
      ELASTICDL_RETURN_IF_ERROR(AddIds(view(ids), path, rows));
    }
    ELASTICDL_RETURN_IF_ERROR(CheckIds(rows, path));
  }
  return model;
}

}  // namespace elasticdl::checkpoint::internal
