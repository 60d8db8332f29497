// Reads and writes elasticdl.v1.Model in its wire format without copying the
// tensors. Protocol Buffers would need a second copy of every tensor, and
// refuses messages above 2 GiB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::checkpoint::internal {

// The beginning of a Model.
std::string EncodeModelVersion(int64_t version);

// All of a dense_parameters entry but its tensor_content; the tensor's bytes
// follow it.
std::string EncodeTensorHeader(const NamedTensor& tensor);

// An embedding_table_infos entry.
std::string EncodeTableInfo(const TableRows& table);

// All of an embedding_tables entry up to its tensor_content: `rows` rows, whose
// ids take `id_bytes` (EncodedIdBytes). The rows follow it, then
// EncodeIdsHeader, then the ids (AppendIds).
std::string EncodeRowsHeader(absl::string_view name, int64_t rows, int64_t dim,
                             int64_t id_bytes,
                             v1::DataType dtype = v1::DT_FLOAT);
int64_t EncodedIdBytes(absl::Span<const int64_t> ids);
std::string EncodeIdsHeader(int64_t id_bytes);
void AppendIds(absl::Span<const int64_t> ids, std::string& out);
// One id takes so many bytes at most.
inline constexpr int64_t kMaxIdBytes = 10;

// Bytes that are looked at in small parts: of a file, or in memory.
// Thread-compatible.
class ByteSource {
 public:
  // At most so many are asked for at a time.
  static constexpr int64_t kMostAtOnce = 4096;

  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  // `size` bytes at `offset`, fewer at the end or after an error. Valid until
  // the next call.
  virtual absl::string_view At(int64_t offset, int64_t size) = 0;
  // The first error.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// Bytes of a file.
struct Range {
  int64_t offset = 0;
  int64_t size = 0;
};

// What is in a Model, and where: everything but the contents of tensors and the
// ids of rows.
struct ModelIndex {
  struct Tensor {
    // Without bytes.
    NamedTensor tensor;
    Range content;
  };
  struct Table {
    // Without bytes.
    NamedTensor rows;
    Range content;
    // Their ids, for SetIds.
    std::vector<Range> ids;
  };
  int64_t version = 0;
  std::vector<Tensor> dense_parameters;
  std::vector<Table> embedding_tables;
};

// Reads only what is between the contents. DATA_LOSS names `path` and the
// offset. Checks that each tensor's content has the size of its shape.
absl::StatusOr<ModelIndex> IndexModel(ByteSource& source,
                                      absl::string_view path);

// Decodes ids and adds them to `rows`. DATA_LOSS names `path`.
absl::Status AddIds(absl::string_view encoded, absl::string_view path,
                    EmbeddingRows& rows);
// After all of them: DATA_LOSS unless there is one for each row.
absl::Status CheckIds(const EmbeddingRows& rows, absl::string_view path);

// A Model whose tensors point into the parsed bytes.
struct ModelView {
  int64_t version = 0;
  std::vector<NamedTensor> dense_parameters;
  std::vector<EmbeddingRows> embedding_tables;
};

// The same for a file in memory.
absl::StatusOr<ModelView> ParseModel(absl::string_view bytes,
                                     absl::string_view path);

// How many bytes a tensor of this type and shape has; -1 when the type is
// unknown, a dimension is negative, or it overflows.
int64_t ExpectedBytes(const NamedTensor& tensor);

}  // namespace elasticdl::checkpoint::internal
