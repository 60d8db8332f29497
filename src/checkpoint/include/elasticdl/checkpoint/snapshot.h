// What a checkpoint holds, before it is written and after it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elasticdl/v1/ledger.pb.h"
#include "elasticdl/v1/tensor.pb.h"

namespace elasticdl::checkpoint {

// A tensor whose elements (row-major, little-endian) live elsewhere. `bytes`
// may be unaligned: copy them with memcpy.
struct NamedTensor {
  std::string name;
  v1::DataType dtype = v1::DT_FLOAT;
  std::vector<int64_t> shape;
  absl::Span<const char> bytes;
};

// Rows of an embedding table as the Python ElasticDL saves them: ids[i] is the
// id of row i of `rows` (shape {ids.size(), dim}). A table may come in several
// parts, one per file.
struct EmbeddingRows {
  std::string name;
  std::vector<int64_t> ids;
  NamedTensor rows;
};

// Bytes of one element; 0 for a type that checkpoints do not hold.
int64_t ElementBytes(v1::DataType dtype);

// "name float32[10,3]", for messages.
std::string Describe(const NamedTensor& tensor);

// A view of the state to be saved: nothing is copied, so the memory behind
// `bytes` must stay and not change until the save is over.
struct Snapshot {
  // Committed steps; the V of version-V.
  int64_t version = 0;
  // Parameters and buffers of the model. Names are unique.
  std::vector<NamedTensor> variables;
  // Optimizer state, named by SlotName(). Names are unique.
  std::vector<NamedTensor> slots;
  // OptimizerSpec::ToString(), and how many times it was applied.
  std::string optimizer;
  int64_t optimizer_step = 0;
  // The data ledger of the very step `version`; absent for a bare model.
  std::optional<v1::Ledger> ledger;
};

// "<param>/<slot>".
std::string SlotName(absl::string_view param, absl::string_view slot);

// A snapshot together with the memory it looks at. Move-only.
struct OwnedSnapshot {
  // A deep copy: all tensors in one allocation.
  static OwnedSnapshot Copy(const Snapshot& snapshot);

  Snapshot snapshot;
  // Whatever keeps the bytes alive.
  std::unique_ptr<char[]> buffer;
};

// A checkpoint in memory. Move-only; the tensors point into it, and stay valid
// when it is moved. Thread-compatible.
class Loaded {
 public:
  Loaded() = default;
  Loaded(Loaded&&) = default;
  Loaded& operator=(Loaded&&) = default;

  // The tensor, or nullptr.
  const NamedTensor* FindVariable(absl::string_view name) const;
  const NamedTensor* FindSlot(absl::string_view param,
                              absl::string_view slot) const;

  // The version-V folder it came from.
  std::string path;
  int64_t version = 0;
  // Sorted by name.
  std::vector<NamedTensor> variables;
  std::vector<NamedTensor> slots;
  // Only in checkpoints of parameter servers.
  std::vector<EmbeddingRows> embedding_tables;
  // Empty, 0 and absent in checkpoints of the Python ElasticDL.
  std::string optimizer;
  int64_t optimizer_step = 0;
  std::optional<v1::Ledger> ledger;
  // Contents of the files; owns what the tensors point at.
  std::vector<std::string> storage;
};

// Are the loaded variables those of `model` (names, types, shapes; its `bytes`
// do not matter)? FAILED_PRECONDITION says that it is a checkpoint of another
// model and lists the first tensors that differ.
absl::Status CheckCompatible(const Loaded& loaded,
                             absl::Span<const NamedTensor> model);

}  // namespace elasticdl::checkpoint
