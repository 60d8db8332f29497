// Buckets that move from one server to another while training goes on, one or a
// few with each version of the map:
//
//   old owner                          new owner
//   PsMap: takes the bucket out of     PsMap: awaits the bucket; pulls and
//   its tables and keeps it            pushes are UNAVAILABLE
//   Fetch              --- bytes --->  PsImport: has it
//   PsForget           <-- done ----
//
// Each step is an entry of a log and may be repeated, so that either server may
// die at any time. bucket_mover.h asks for it all.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "floats.h"
#include "server_state.h"

namespace elasticdl::ps {

absl::Status ServerState::CheckMap(const v1::PsMap& map) const {
  if (!defined()) return absl::NotFoundError("the model is not defined yet");
  ELASTICDL_ASSIGN_OR_RETURN(
      const BucketMap next,
      BucketMap::Make(map.version(), map.servers(),
                      {map.owners().begin(), map.owners().end()}));
  if (next == map_) return absl::AlreadyExistsError("this map is known");
  if (next.version() <= map_.version()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "map ", next.version(), " comes after map ", map_.version()));
  }
  // Workers only know how a job begins; all other maps are the master's.
  if (!map.moves() && next.version() != kFirstMapVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("map ", next.version(), " would lose values"));
  }
  // What moves must be somewhere: the master has asked before whether it fits,
  // and refusing it in the middle would end the job.
  if (!map.moves()) ELASTICDL_RETURN_IF_ERROR(CheckDenseMemory(next));
  for (const int bucket : awaited_) {
    if (next.owner(bucket) != options_.server) {
      return absl::UnavailableError(
          absl::StrCat("bucket ", bucket, " is still on its way to server ",
                       options_.server));
    }
  }
  for (const auto& [bucket, leaving] : leaving_) {
    if (next.owner(bucket) == options_.server) {
      return absl::UnavailableError(absl::StrCat(
          "bucket ", bucket, " is still kept on server ", options_.server));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerState::SetMap(const v1::PsMap& map) {
  ELASTICDL_ASSIGN_OR_RETURN(
      BucketMap next,
      BucketMap::Make(map.version(), map.servers(),
                      {map.owners().begin(), map.owners().end()}));
  // They were cut for the map before; whoever restores begins again.
  DropRestored(std::nullopt);
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const bool mine = next.owner(bucket) == options_.server;
    if (!map.moves()) {
      if (mine) effect_.buckets.push_back(bucket);
      continue;
    }
    const bool owned = !map_.empty() && map_.owner(bucket) == options_.server;
    // Without values there is nothing to keep.
    const bool had = initialized_ && owned;
    if (had && !mine) TakeOut(bucket, next.version());
    if (mine && !had) awaited_.insert(bucket);
    if (owned && !(had && mine)) effect_.buckets.push_back(bucket);
  }
  if (map.moves()) {
    // They were cut for the map before.
    staged_.clear();
    initialized_ = true;
  }
  map_ = std::move(next);
  LayOutDense();
  return absl::OkStatus();
}

AppliedSet ServerState::AppliedTo(int bucket) const {
  const auto found = arrived_.find(bucket);
  if (found == arrived_.end()) return applied_;
  AppliedSet applied = applied_;
  applied.RemoveAll(found->second.here_before);
  applied.AddAll(found->second.there);
  return applied;
}

uint64_t ServerState::DenseIn(int bucket) const {
  uint64_t values = 0;
  for (const DenseChunk& chunk : chunks_) {
    if (chunk.bucket == bucket) values += static_cast<uint64_t>(chunk.size);
  }
  return values;
}

void ServerState::TakeOut(int bucket, int64_t map_version) {
  Leaving leaving;
  v1::PsImport& import = leaving.import;
  import.set_bucket(bucket);
  import.set_map_version(map_version);
  const auto arrived = arrived_.find(bucket);
  import.set_version(version_ +
                     (arrived == arrived_.end() ? 0 : arrived->second.ahead));
  *import.mutable_applied() = AppliedTo(bucket).ToProto();
  import.set_dense_values(DenseIn(bucket));
  for (const auto& table : tables_) {
    const std::string sightings(table->sightings(bucket));
    const std::string rows = table->TakeBucket(bucket);
    import.add_rows(rows.size() / table->record_bytes());
    import.add_sighting_bytes(sightings.size());
    leaving.payload += rows;
    leaving.payload += sightings;
  }
  for (const std::vector<float>& array : dense_) {
    size_t at = 0;
    for (const DenseChunk& chunk : chunks_) {
      if (chunk.bucket == bucket) {
        leaving.payload.append(reinterpret_cast<const char*>(array.data() + at),
                               static_cast<size_t>(chunk.size) * sizeof(float));
      }
      at += static_cast<size_t>(chunk.size);
    }
  }
  arrived_.erase(bucket);
  leaving_[bucket] = std::move(leaving);
}

void ServerState::LayOutDense() {
  std::vector<DenseChunk> chunks =
      DenseChunks(definition_, map_, options_.server);
  if (!dense_.empty() && chunks == chunks_) return;
  const std::vector<DenseChunk> before =
      std::exchange(chunks_, std::move(chunks));
  const std::vector<std::vector<float>> old = std::move(dense_);
  const int64_t parameters = CountParameters(definition_);
  size_t values = 0;
  first_buffer_ = 0;
  for (const DenseChunk& chunk : chunks_) {
    values += static_cast<size_t>(chunk.size);
    if (chunk.offset < parameters) first_buffer_ = values;
  }
  dense_.clear();
  for (size_t i = 0; i < 1 + optimizer_->slot_names().size(); ++i) {
    dense_.emplace_back(values,
                        i == 0 ? 0.0f : optimizer_->initial_slot_value(i - 1));
  }
  // Both lists are sorted by offset.
  size_t from = 0;
  size_t to = 0;
  auto next = before.begin();
  for (const DenseChunk& chunk : chunks_) {
    while (next != before.end() && next->offset < chunk.offset) {
      from += static_cast<size_t>(next->size);
      ++next;
    }
    const auto size = static_cast<size_t>(chunk.size);
    if (next != before.end() && next->offset == chunk.offset) {
      for (size_t i = 0; i < dense_.size(); ++i) {
        std::memcpy(dense_[i].data() + to, old[i].data() + from,
                    size * sizeof(float));
      }
    }
    to += size;
  }
  // Whoever has the old ones asks for all of them again.
  ++dense_version_;
}

std::map<int, int64_t> ServerState::leaving() const {
  std::map<int, int64_t> buckets;
  for (const auto& [bucket, leaving] : leaving_) {
    buckets[bucket] = leaving.import.map_version();
  }
  return buckets;
}

absl::Status ServerState::Fetch(const v1::PsFetch& fetch, v1::PsReply& reply,
                                Buffer& out) const {
  if (map_.version() < fetch.map_version()) {
    return absl::UnavailableError(
        absl::StrCat("bucket map ", fetch.map_version(),
                     " is on its way to server ", options_.server));
  }
  const auto found = leaving_.find(fetch.bucket());
  if (found == leaving_.end() ||
      found->second.import.map_version() != fetch.map_version()) {
    return absl::NotFoundError(
        absl::StrCat("bucket ", fetch.bucket(), " is not kept on server ",
                     options_.server, " for map ", fetch.map_version()));
  }
  const std::string& payload = found->second.payload;
  char* const to = out.Resize(payload.size());
  if (to == nullptr && !payload.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an answer of ", payload.size(), " bytes"));
  }
  std::copy(payload.begin(), payload.end(), to);
  *reply.mutable_entry()->mutable_import() = found->second.import;
  return absl::OkStatus();
}

absl::Status ServerState::CheckImport(const v1::PsImport& import,
                                      absl::string_view payload) const {
  if (!defined()) return absl::NotFoundError("the model is not defined yet");
  if (import.bucket() < 0 || import.bucket() >= kBuckets) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", import.bucket()));
  }
  if (map_.version() < import.map_version()) {
    return absl::NotFoundError(
        absl::StrCat("bucket ", import.bucket(), " moves with map ",
                     import.map_version(), "; the map is ", map_.version()));
  }
  if (awaited_.count(import.bucket()) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("bucket ", import.bucket(), " is not awaited"));
  }
  if (import.rows_size() != static_cast<int>(tables_.size()) ||
      import.sighting_bytes_size() != static_cast<int>(tables_.size()) ||
      import.dense_values() != DenseIn(import.bucket())) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", import.bucket(), " is of another model"));
  }
  uint64_t bytes = import.dense_values() * dense_.size() * sizeof(float);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const uint64_t rows = import.rows(static_cast<int>(t));
    if (rows > RowTable::kMaxRows) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", import.bucket(), ": ", rows,
                       " rows of table ", tables_[t]->name()));
    }
    const uint64_t sightings = import.sighting_bytes(static_cast<int>(t));
    if (sightings > (tables_[t]->counts() ? Sightings::kMostBytes : 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", import.bucket(), ": ", sightings,
                       " bytes of sightings of table ", tables_[t]->name()));
    }
    bytes += rows * tables_[t]->record_bytes() + sightings;
  }
  if (payload.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", import.bucket(), " with ", payload.size(),
                     " bytes instead of ", bytes));
  }
  size_t at = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const EmbeddingTable& table = *tables_[t];
    const auto wrong = [&](int64_t id) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", id, " of table ", table.name(), " in bucket ",
                       import.bucket()));
    };
    // Workers wait meanwhile: sorting is ten times as fast as a set.
    std::vector<int64_t> ids;
    ids.reserve(import.rows(static_cast<int>(t)));
    for (uint64_t i = 0; i < import.rows(static_cast<int>(t)); ++i) {
      const int64_t id = EmbeddingTable::IdOf(payload.data() + at);
      if (BucketOf(HashRow(table.hash(), id)) != import.bucket()) {
        return wrong(id);
      }
      ids.push_back(id);
      at += table.record_bytes();
    }
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice != ids.end()) return wrong(*twice);
    const uint64_t sightings = import.sighting_bytes(static_cast<int>(t));
    if (!Sightings::IsValid(payload.substr(at, sightings))) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", import.bucket(), ": bad sightings of table ",
                       table.name()));
    }
    at += sightings;
  }
  return absl::OkStatus();
}

bool ServerState::HasOtherBuckets(int than) const {
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    if (bucket != than && map_.owner(bucket) == options_.server &&
        awaited_.count(bucket) == 0) {
      return true;
    }
  }
  return false;
}

void ServerState::ImportNames(const v1::PsImport& import) {
  const AppliedSet there = AppliedSet::FromProto(import.applied());
  if (!HasOtherBuckets(import.bucket())) {
    // A server that has just begun is as old as the first that it gets, and
    // counts on from there.
    applied_ = there;
    arrived_.clear();
    version_ = import.version();
    return;
  }
  ForgetBefore(there.oldest_epoch());
  Arrived arrived{there, applied_, import.version() - version_};
  arrived.there.ForgetBefore(applied_.oldest_epoch());
  arrived.there.RemoveAll(applied_);
  arrived.here_before.RemoveAll(there);
  if (!arrived.same()) arrived_[import.bucket()] = std::move(arrived);
}

absl::Status ServerState::Import(const v1::PsImport& import,
                                 absl::string_view payload) {
  awaited_.erase(import.bucket());
  size_t at = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const uint64_t bytes =
        import.rows(static_cast<int>(t)) * tables_[t]->record_bytes();
    ELASTICDL_RETURN_IF_ERROR(tables_[t]->Restore(payload.substr(at, bytes)));
    at += bytes;
    const uint64_t sightings = import.sighting_bytes(static_cast<int>(t));
    if (tables_[t]->counts()) {
      tables_[t]->RestoreSightings(import.bucket(),
                                   payload.substr(at, sightings));
    }
    at += sightings;
  }
  for (std::vector<float>& array : dense_) {
    size_t to = 0;
    for (const DenseChunk& chunk : chunks_) {
      const auto size = static_cast<size_t>(chunk.size);
      if (chunk.bucket == import.bucket()) {
        std::memcpy(array.data() + to, payload.data() + at,
                    size * sizeof(float));
        at += size * sizeof(float);
      }
      to += size;
    }
  }
  ImportNames(import);
  if (import.dense_values() > 0) ++dense_version_;
  return absl::OkStatus();
}

absl::Status ServerState::CheckForget(const v1::PsForget& forget) const {
  const auto found = leaving_.find(forget.bucket());
  if (found == leaving_.end()) {
    return absl::AlreadyExistsError(
        absl::StrCat("bucket ", forget.bucket(), " is not kept"));
  }
  if (found->second.import.map_version() != forget.map_version()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "bucket ", forget.bucket(), " left with map ",
        found->second.import.map_version(), ", not ", forget.map_version()));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
