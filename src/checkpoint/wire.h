// Reads and writes elasticdl.v1.Model in its wire format without copying the
// tensors. Protocol Buffers would need a second copy of every tensor, and
// refuses messages above 2 GiB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// A Model whose tensors point into the parsed bytes.
struct ModelView {
  int64_t version = 0;
  std::vector<NamedTensor> dense_parameters;
  std::vector<EmbeddingRows> embedding_tables;
};

// DATA_LOSS names `path` and the offset. Checks that each tensor's bytes match
// its shape.
absl::StatusOr<ModelView> ParseModel(absl::string_view bytes,
                                     absl::string_view path);

// How many bytes a tensor of this type and shape has; -1 when the type is
// unknown, a dimension is negative, or it overflows.
int64_t ExpectedBytes(const NamedTensor& tensor);

}  // namespace elasticdl::checkpoint::internal
