// The contents of a checkpoint, before it is written and after it is read.
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

class LateLedger;
class LiveReader;

// A tensor whose elements (row-major, little-endian) live elsewhere. `bytes`
// may be unaligned: copy them with memcpy.
struct NamedTensor {
  std::string name;
  v1::DataType dtype = v1::DT_FLOAT;
  std::vector<int64_t> shape;
  absl::Span<const char> bytes;
};

// Rows of an embedding table, read from a file: ids[i] is the id of row i of
// `rows` (shape {ids.size(), dim}). A table may come in several parts, one per
// file.
struct EmbeddingRows {
  std::string name;
  std::vector<int64_t> ids;
  NamedTensor rows;
  // Named by SlotName(), with the type and shape of `rows`; sorted by name. All
  // parts of a table have the same ones.
  std::vector<NamedTensor> slots;
  // Which rows are evicted first: int64, one for each; null: not known.
  const char* ranks = nullptr;
};

// Rows of an embedding table to be saved, which live elsewhere: row i is
// values[i * dim, (i + 1) * dim), and so in each slot.
struct TableRows {
  struct Slot {
    // Of the optimizer's slot ("m").
    std::string name;
    absl::Span<const float> values;
  };
  std::string name;
  int64_t dim = 0;
  // How rows begin that nobody has trained; for other programs. May be empty.
  std::string initializer;
  absl::Span<const int64_t> ids;
  absl::Span<const float> values;
  std::vector<Slot> slots;
  // Of a table whose rows may be evicted: as many as ids.
  absl::Span<const int64_t> ranks;
};

// The same with its memory.
struct OwnedTableRows {
  struct Slot {
    std::string name;
    std::vector<float> values;
  };
  std::string name;
  int64_t dim = 0;
  std::string initializer;
  std::vector<int64_t> ids;
  std::vector<float> values;
  std::vector<Slot> slots;
  std::vector<int64_t> ranks;
};

// Size of one element in bytes; 0 for a type that checkpoints do not support.
int64_t ElementBytes(v1::DataType dtype);

// "float32"; "unknown" for a type that checkpoints do not support.
const char* TypeName(v1::DataType dtype);

// "name float32[10,3]", for messages.
std::string Describe(const NamedTensor& tensor);

// The lineage of a model. When the last copy of a model is lost, the job is
// rolled back to an older one. Checkpoints that descend from the lost model are
// abandoned: they must not be mistaken for the job's model of the same step.
struct Lineage {
  // The run of a job; empty = unknown (other programs, older versions).
  std::string run;
  // Grows with every rollback of a run.
  int64_t generation = 0;

  // Was the run rolled back after this?
  bool IsAbandonedBy(const Lineage& other) const {
    return run == other.run && generation < other.generation;
  }
};

// A view of the state to be saved. Nothing is copied, so the memory behind
// `bytes` must stay valid until the save has finished, and unchanged, unless it
// is read through `live`.
struct Snapshot {
  // Committed steps; the V of version-V.
  int64_t version = 0;
  Lineage lineage;
  // Parameters and buffers of the model. Names are unique.
  std::vector<NamedTensor> variables;
  // Optimizer state, named by SlotName(). Names are unique.
  std::vector<NamedTensor> slots;
  // Rows that live on parameter servers, with their slots. A table may come in
  // several parts with different ids, which follow each other and have the same
  // dim and slots; one without rows keeps its name and dim.
  std::vector<TableRows> tables;
  // OptimizerSpec::ToString(), and how many times it was applied.
  std::string optimizer;
  int64_t optimizer_step = 0;
  // The data ledger of exactly this step; absent for a model alone.
  std::optional<v1::Ledger> ledger;
  // If set, the tensors are read through it, because they change; there are no
  // tables. `slots` are then so many runs of the same length, each in the order
  // of the first variables: they are read side by side. Shared by the copies of
  // this snapshot.
  std::shared_ptr<LiveReader> live;
  size_t num_slot_runs = 1;
  // If set, the ledger and the lineage's run come later. Shared with whoever
  // gets them.
  std::shared_ptr<LateLedger> late;
};

// "<param>/<slot>".
std::string SlotName(absl::string_view param, absl::string_view slot);

// A snapshot together with the memory it refers to. Move-only.
struct OwnedSnapshot {
  // A deep copy: all tensors in one allocation.
  static OwnedSnapshot Copy(const Snapshot& snapshot);

  // For what is too large to be copied. Keeps the values; the tensors of
  // `snapshot` may point to the bytes that it returns.
  absl::Span<const char> Keep(std::vector<float> values);
  // Adds a part of a table to `snapshot` and keeps its rows.
  void AddTable(OwnedTableRows rows);

  Snapshot snapshot;
  // Whatever keeps the bytes alive.
  std::unique_ptr<char[]> buffer;
  std::vector<std::vector<float>> arrays;
  // And ranks.
  std::vector<std::vector<int64_t>> ids;
};

// A checkpoint in memory. Move-only; the tensors point into it, and stay valid
// when it is moved, or to where LoadOptions::place has put them.
// Thread-compatible.
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
  Lineage lineage;
  // Sorted by name.
  std::vector<NamedTensor> variables;
  std::vector<NamedTensor> slots;
  // Only in checkpoints of parameter servers. In the order of the files.
  std::vector<EmbeddingRows> embedding_tables;
  // Empty, 0 and absent in checkpoints of the Python ElasticDL.
  std::string optimizer;
  int64_t optimizer_step = 0;
  std::optional<v1::Ledger> ledger;
  // Of the files that were read.
  int64_t num_files = 0;
  int64_t file_bytes = 0;

  // Uninitialized memory that lives as long as this object, for tensors.
  char* Allocate(size_t bytes);

 private:
  std::vector<std::unique_ptr<char[]>> storage_;
};

// Checks that the loaded variables match `model` (names, types and shapes, not
// `bytes`). FAILED_PRECONDITION says that it is a checkpoint of another model
// and lists the first tensors that differ. `other_names` are further names of
// the model's tensors, under which older releases wrote them a second time.
absl::Status CheckCompatible(const Loaded& loaded,
                             absl::Span<const NamedTensor> model,
                             absl::Span<const std::string> other_names = {});

}  // namespace elasticdl::checkpoint
