// The state of a parameter server: a deterministic state machine over the
// entries of its log. No clock, no threads, no files.
//
//   entry             needs                        then
//   ----------------  --------------------------- -----------------------------
//   PsDefinition      nothing                      the model is known
//   PsMap             a definition                 buckets are known; with
//                                                  `moves`: those that come are
//                                                  awaited, those that go are
//                                                  kept for who gets them
//   PsRestoreRows     a map, no values yet         checkpointed rows are here
//   PsInitialValues   a map                        the model has values
//   PsPush            values, nothing awaited      it is applied, or staged
//   PsCommit          all its pushes are staged    their mean is applied
//   PsImport          the bucket is awaited        the bucket is here
//   PsForget          the bucket is kept           it is no longer kept
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "applied_set.h"
#include "elasticdl/optim.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/ps/dense_layout.h"
#include "elasticdl/v1/ps.pb.h"
#include "embedding_table.h"
#include "entry_effect.h"
#include "row_replay.h"
#include "wire.h"

namespace elasticdl::ps {

// Thread-compatible: the const functions may run in several threads while
// nobody changes the state. The same entries give the same bits.
class ServerState {
 public:
  struct Options {
    int server = 0;
    // Of Bytes; 0 = as much as there is.
    size_t memory_limit = 0;
  };
  explicit ServerState(Options options) : options_(options) {}

  // Can the entry be applied? ALREADY_EXISTS: it is in the state, and all is
  // well. NOT_FOUND: something must come first (definition, map, values, a
  // staged push). UNAVAILABLE: a bucket or a map has not arrived yet.
  // FAILED_PRECONDITION: made for another map. INVALID_ARGUMENT: malformed;
  // says what is wrong. RESOURCE_EXHAUSTED: no memory. The bytes come from the
  // network and are not trusted. `payload` lies at a multiple of 8.
  absl::Status Check(const v1::PsEntry& entry, absl::string_view payload) const;
  // The same for an entry of a log: whoever appended it has checked it, so this
  // is only what Apply relies on. The memory of rows does not matter: they were
  // accepted, and while rows are collected nobody knows how much is in use.
  absl::Status CheckLogged(const v1::PsEntry& entry,
                           absl::string_view payload) const;
  // Only after Check or CheckLogged said OK. An error means that memory ran out
  // half way: the state is not to be used any more.
  absl::Status Apply(const v1::PsEntry& entry, absl::string_view payload);
  // While a log is read: rows of pushes are not updated by Apply but later, by
  // several threads at once, which gives the same bits. Payloads must stay
  // until ApplyRows, after which the state is what it would have been, or until
  // this is switched off. Apply does it first where it matters.
  void CollectRows(bool collect);
  absl::Status ApplyRows();
  // Of the last entry that was applied. Not a part of the state.
  const EntryEffect& effect() const { return effect_; }

  // Same errors as Check. `payload` has the ids; the answer's payload is
  // written to `out`.
  absl::Status Pull(const v1::PsPull& pull, absl::string_view payload,
                    v1::PsReply& reply, Buffer& out) const;
  // What the answer's payload has at most, if the request is well-formed; may
  // be asked before its payload is here.
  uint64_t AnswerBytes(const v1::PsPull& pull, uint64_t payload_bytes) const;
  uint64_t AnswerBytes(const v1::PsRead& read) const;
  // For checkpoints. Same errors.
  absl::Status Read(const v1::PsRead& read, v1::PsReply& reply,
                    Buffer& out) const;

  // ---- moves ----
  // Buckets that are kept for who gets them, and the map they left with.
  std::map<int, int64_t> leaving() const;
  const std::set<int>& awaited() const { return awaited_; }
  // The entry by which the new owner gets one of them, and its payload.
  // NOT_FOUND when it is not kept; UNAVAILABLE before the map is here.
  absl::Status Fetch(const v1::PsFetch& fetch, v1::PsReply& reply,
                     Buffer& out) const;

  const v1::PsDefinition& definition() const { return definition_; }
  const BucketMap& map() const { return map_; }
  bool defined() const { return optimizer_ != nullptr; }
  // It has values: the model can be pulled and pushed to.
  bool initialized() const { return initialized_; }
  // Pushes (synchronous jobs: commits) that are in the model.
  int64_t version() const { return version_; }
  void FillStatus(v1::PsStatus& status) const;
  void FillMap(v1::PsMap& map) const;
  // What counts for the memory limit.
  size_t Bytes() const;
  // The same without rows.
  size_t EmptyBytes() const;
  // Bytes if there is a limit, otherwise anything: many tables take time.
  size_t LimitedBytes() const {
    return options_.memory_limit > 0 ? Bytes() : 0;
  }
  // Nine tenths of the memory limit are in use.
  bool NearlyFull() const;
  // Of everything that Pull and later entries depend on. Does not depend on the
  // order in which rows were created.
  uint64_t Digest() const;

  // ---- snapshots (snapshot.h) ----
  // Everything but the raw values.
  v1::PsSnapshot Header(int64_t log_position) const;
  // The dense values, then each slot's.
  const std::vector<std::vector<float>>& dense() const { return dense_; }
  const std::vector<std::unique_ptr<EmbeddingTable>>& tables() const {
    return tables_;
  }
  // Payloads of staged pushes and of buckets that leave, in the header's order.
  std::vector<absl::string_view> Payloads() const;
  // A state with this header; dense values, rows and payloads are still to be
  // filled in.
  static absl::StatusOr<ServerState> FromHeader(Options options,
                                                const v1::PsSnapshot& header);
  std::vector<std::vector<float>>& mutable_dense() { return dense_; }
  std::vector<std::string*> mutable_payloads();

 private:
  // shard, epoch, begin, end.
  using Name = std::tuple<std::string, int32_t, int64_t, int64_t>;
  struct Staged {
    v1::PsPush push;
    std::string payload;
  };
  struct Leaving {
    v1::PsImport import;
    std::string payload;
  };
  // Of a bucket that came from another server: what was applied to it there and
  // not here, and what this server had applied before it came, to its other
  // buckets only.
  struct Arrived {
    AppliedSet there;
    AppliedSet here_before;
    // How many more pushes are in it than in the others.
    int64_t ahead = 0;
    // Nothing tells it from the other buckets.
    bool same() const { return there.size() == 0 && here_before.size() == 0; }
  };
  // Is a push in the model, and in which buckets?
  struct Presence {
    // In the buckets that did not arrive from elsewhere.
    bool here = false;
    // In those that did.
    std::map<int, bool> arrived;
    bool everywhere() const;
    bool nowhere() const;
    bool In(int bucket) const;
  };
  // A gradient of this server's part of the model.
  struct Gradient {
    const float* dense = nullptr;
    // By part: table, ids, values.
    struct Rows {
      uint32_t table = 0;
      absl::Span<const int64_t> ids;
      const float* values = nullptr;
    };
    std::vector<Rows> rows;
  };

  static Name NameOf(const v1::PsPush& push);

  // server_state.cc
  absl::Status CheckDefinition(const v1::PsDefinition& definition) const;
  // How many dense values this server has with this map.
  uint64_t DenseValuesIn(const BucketMap& map) const;
  // Would the dense arrays of this map fit?
  absl::Status CheckDenseMemory(const BucketMap& map) const;
  absl::Status CheckMapVersion(int64_t version) const;
  // The above, and the model has values that are all here.
  absl::Status CheckReady(int64_t map_version) const;
  // Are the parts' tables known, and how many rows and values have they?
  absl::Status CountParts(
      const google::protobuf::RepeatedPtrField<v1::PsTablePart>& parts,
      absl::string_view payload, uint64_t& rows, uint64_t& values) const;
  absl::Status CheckIds(const v1::PsTablePart& part, const char* ids) const;
  absl::Status Define(const v1::PsDefinition& definition);
  size_t DenseValues() const { return dense_.empty() ? 0 : dense_[0].size(); }
  // Why something is refused.
  absl::Status TooLarge(absl::string_view what) const;

  // server_state_restore.cc
  absl::Status CheckInitialValues(const v1::PsInitialValues& values,
                                  absl::string_view payload) const;
  absl::Status CheckRestoreRows(const v1::PsRestoreRows& rows,
                                absl::string_view payload) const;
  // Without what the rows are.
  absl::Status CheckRestoreSize(const v1::PsRestoreRows& rows,
                                absl::string_view payload) const;
  absl::Status CheckRestoreMemory(const v1::PsRestoreRows& rows,
                                  absl::string_view payload) const;
  void SetInitialValues(const v1::PsInitialValues& values,
                        absl::string_view payload);
  absl::Status RestoreRows(const v1::PsRestoreRows& rows,
                           absl::string_view payload);
  // Rows that were restored, unless they are of this version of a checkpoint.
  void DropRestored(std::optional<int64_t> but);
  absl::Status ReadDense(Buffer& out) const;
  absl::Status ReadRows(const v1::PsRead::Rows& rows, v1::PsReply& reply,
                        Buffer& out) const;

  // server_state_push.cc
  absl::Status CheckPush(const v1::PsPush& push,
                         absl::string_view payload) const;
  absl::Status CheckPushSize(const v1::PsPush& push,
                             absl::string_view payload) const;
  absl::Status CheckName(const v1::PsPush& push, Presence& presence) const;
  absl::Status CheckMemory(const v1::PsPush& push,
                           absl::string_view payload) const;
  absl::Status CheckFinite(const v1::PsPush& push,
                           absl::string_view payload) const;
  absl::Status CheckCommit(const v1::PsCommit& commit) const;
  absl::Status ApplyPush(const v1::PsPush& push, absl::string_view payload);
  absl::Status ApplyCommit(const v1::PsCommit& commit);
  Gradient View(const v1::PsPush& push, absl::string_view payload) const;
  void Remember(const v1::PsPush& push);
  void ForgetBefore(int32_t epoch);
  // Collects rows of a push, if that may be done.
  bool Collect(const Gradient::Rows& rows, double rate);
  // To all buckets, or to those that do not have it yet.
  absl::Status Update(const Gradient& gradient, double rate);
  // `bytes`: Bytes() before, and after.
  absl::Status PushTo(EmbeddingTable& table, absl::Span<const int64_t> ids,
                      const float* gradients, double rate, size_t& bytes);
  absl::Status UpdateMissing(const Gradient& gradient, double rate,
                             const Presence& presence);
  // The optimizer's. A bucket that catches up may do so before the first
  // version.
  int64_t step() const { return std::max<int64_t>(1, version_); }
  void UpdateDense(size_t at, size_t size, const float* gradients, double rate);

  // server_state_move.cc
  absl::Status CheckMap(const v1::PsMap& map) const;
  absl::Status CheckImport(const v1::PsImport& import,
                           absl::string_view payload) const;
  absl::Status CheckForget(const v1::PsForget& forget) const;
  absl::Status SetMap(const v1::PsMap& map);
  void TakeOut(int bucket, int64_t map_version);
  absl::Status Import(const v1::PsImport& import, absl::string_view payload);
  void ImportNames(const v1::PsImport& import);
  // What is applied to a bucket that is here.
  AppliedSet AppliedTo(int bucket) const;
  bool HasOtherBuckets(int than) const;
  // Lays the dense arrays out for the map; values that stay are kept.
  void LayOutDense();
  uint64_t DenseIn(int bucket) const;

  Options options_;
  v1::PsDefinition definition_;
  BucketMap map_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  // Where each chunk is in the dense arrays: one after the other.
  std::vector<DenseChunk> chunks_;
  std::vector<std::vector<float>> dense_;
  // Where the buffers begin in them.
  size_t first_buffer_ = 0;
  std::vector<std::unique_ptr<EmbeddingTable>> tables_;
  bool initialized_ = false;
  // Until then: the version of the checkpoint whose rows are here.
  std::optional<int64_t> restoring_;
  int64_t version_ = 0;
  // Grows with every change of the dense values.
  int64_t dense_version_ = 0;

  AppliedSet applied_;
  std::map<int, Arrived> arrived_;
  std::set<int> awaited_;
  std::map<int, Leaving> leaving_;
  std::map<Name, Staged> staged_;
  EntryEffect effect_;

  // CollectRows; null: off. Not a part of the state. Last: it uses tables.
  std::unique_ptr<RowReplay> replay_;
};

}  // namespace elasticdl::ps
