#include "server_state.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/crc32.h"
#include "elasticdl/common/status.h"
#include "floats.h"
#include "google/protobuf/util/message_differencer.h"
#include "memory_pressure.h"

namespace elasticdl::ps {
namespace {

// Wider rows are dense parameters by another name.
constexpr int64_t kMaxDim = 1 << 16;
// Each costs some 60 KB, however few rows it has.
constexpr int kMaxTables = 4096;

absl::StatusOr<EmbeddingTable::Options> TableOptions(
    const v1::PsDefinition& definition, const v1::PsDefinition::Table& table) {
  EmbeddingTable::Options options;
  options.name = table.name();
  options.dim = static_cast<size_t>(table.dim());
  options.seed = definition.seed();
  ELASTICDL_ASSIGN_OR_RETURN(options.initializer,
                             Initializer::Parse(table.initializer()));
  ELASTICDL_ASSIGN_OR_RETURN(options.type, ParseRowType(table.dtype()));
  if (table.max_rows() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", table.max_rows(), " rows"));
  }
  options.max_rows = table.max_rows();
  if (table.eviction() == "frequency") {
    options.eviction = Eviction::kFrequency;
  } else if (!table.eviction().empty() && table.eviction() != "age") {
    return absl::InvalidArgumentError(
        absl::StrCat("eviction by '", table.eviction(), "'"));
  }
  if (table.min_count() < 0 || table.min_count() > Sightings::kMostCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows after ", table.min_count(), " pushes"));
  }
  options.min_count = table.min_count();
  return options;
}

}  // namespace

absl::Status ServerState::Check(const v1::PsEntry& entry,
                                absl::string_view payload) const {
  switch (entry.entry_case()) {
    case v1::PsEntry::kDefinition:
      return CheckDefinition(entry.definition());
    case v1::PsEntry::kMap:
      return CheckMap(entry.map());
    case v1::PsEntry::kInitialValues:
      return CheckInitialValues(entry.initial_values(), payload);
    case v1::PsEntry::kPush:
      return CheckPush(entry.push(), payload);
    case v1::PsEntry::kCommit:
      return CheckCommit(entry.commit());
    case v1::PsEntry::kImport:
      return CheckImport(entry.import(), payload);
    case v1::PsEntry::kForget:
      return CheckForget(entry.forget());
    case v1::PsEntry::kRestoreRows:
      return CheckRestoreRows(entry.restore_rows(), payload);
    case v1::PsEntry::ENTRY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("an entry of no known kind");
}

absl::Status ServerState::CheckLogged(const v1::PsEntry& entry,
                                      absl::string_view payload) const {
  if (entry.has_push()) {
    ELASTICDL_RETURN_IF_ERROR(CheckReady(entry.push().map_version()));
    return CheckPushSize(entry.push(), payload);
  }
  if (entry.has_restore_rows()) {
    return CheckRestoreSize(entry.restore_rows(), payload);
  }
  return Check(entry, payload);
}

absl::Status ServerState::Apply(const v1::PsEntry& entry,
                                absl::string_view payload) {
  effect_ = EntryEffect();
  if (!entry.has_push()) ELASTICDL_RETURN_IF_ERROR(ApplyRows());
  switch (entry.entry_case()) {
    case v1::PsEntry::kDefinition:
      return Define(entry.definition());
    case v1::PsEntry::kMap:
      return SetMap(entry.map());
    case v1::PsEntry::kInitialValues:
      SetInitialValues(entry.initial_values(), payload);
      return absl::OkStatus();
    case v1::PsEntry::kPush:
      return ApplyPush(entry.push(), payload);
    case v1::PsEntry::kCommit:
      return ApplyCommit(entry.commit());
    case v1::PsEntry::kImport:
      return Import(entry.import(), payload);
    case v1::PsEntry::kForget:
      leaving_.erase(entry.forget().bucket());
      return absl::OkStatus();
    case v1::PsEntry::kRestoreRows:
      return RestoreRows(entry.restore_rows(), payload);
    case v1::PsEntry::ENTRY_NOT_SET:
      break;
  }
  return absl::InternalError("an entry of no known kind was accepted");
}

// ---- definition ----

absl::Status ServerState::CheckDefinition(
    const v1::PsDefinition& definition) const {
  if (defined()) {
    if (google::protobuf::util::MessageDifferencer::Equals(definition_,
                                                           definition)) {
      return absl::AlreadyExistsError("this definition is known");
    }
    return absl::InvalidArgumentError(
        definition_.run() != definition.run()
            ? "the servers hold the model of another run"
            : "the servers hold another model: parameters, tables or optimizer "
              "differ");
  }
  if (definition.tables_size() > kMaxTables) {
    return absl::InvalidArgumentError(
        absl::StrCat(definition.tables_size(), " tables"));
  }
  ELASTICDL_RETURN_IF_ERROR(
      optim::OptimizerSpec::Parse(definition.optimizer()).status());
  ELASTICDL_RETURN_IF_ERROR(CountDense(definition).status());
  std::set<std::string> names;
  for (const v1::PsDefinition::Table& table : definition.tables()) {
    if (!names.insert(table.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.name(), " is there twice"));
    }
    if (table.dim() < 1 || table.dim() > kMaxDim) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", table.name(), " has rows of ", table.dim(), " values"));
    }
    ELASTICDL_RETURN_IF_ERROR(Annotate(TableOptions(definition, table).status(),
                                       absl::StrCat("table ", table.name())));
  }
  return absl::OkStatus();
}

absl::Status ServerState::Define(const v1::PsDefinition& definition) {
  definition_ = definition;
  ELASTICDL_ASSIGN_OR_RETURN(
      const optim::OptimizerSpec spec,
      optim::OptimizerSpec::Parse(definition.optimizer()));
  ELASTICDL_ASSIGN_OR_RETURN(optimizer_, optim::Optimizer::Create(spec));
  for (const v1::PsDefinition::Table& table : definition.tables()) {
    ELASTICDL_ASSIGN_OR_RETURN(EmbeddingTable::Options options,
                               TableOptions(definition, table));
    tables_.push_back(
        std::make_unique<EmbeddingTable>(std::move(options), *optimizer_));
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckMapVersion(int64_t version) const {
  // It comes from the master, with all that this server needs.
  if (version > kFirstMapVersion && version > map_.version()) {
    return absl::UnavailableError(absl::StrCat(
        "bucket map ", version, " is on its way to server ", options_.server));
  }
  if (!defined()) return absl::NotFoundError("the model is not defined yet");
  if (map_.empty()) return absl::NotFoundError("there is no bucket map yet");
  if (version != map_.version()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "made for bucket map ", version, "; the map is ", map_.version()));
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckReady(int64_t map_version) const {
  ELASTICDL_RETURN_IF_ERROR(CheckMapVersion(map_version));
  if (!initialized_) return absl::NotFoundError("the model has no values yet");
  if (!awaited_.empty()) {
    return absl::UnavailableError(
        absl::StrCat(awaited_.size(), " buckets are on their way to server ",
                     options_.server));
  }
  return absl::OkStatus();
}

uint64_t ServerState::DenseValuesIn(const BucketMap& map) const {
  uint64_t values = 0;
  for (const DenseChunk& chunk :
       DenseChunks(definition_, map, options_.server)) {
    values += static_cast<uint64_t>(chunk.size);
  }
  return values;
}

absl::Status ServerState::CheckDenseMemory(const BucketMap& map) const {
  if (options_.memory_limit == 0) return absl::OkStatus();
  const uint64_t bytes = DenseValuesIn(map) * sizeof(float) *
                         (1 + optimizer_->slot_names().size());
  if (bytes <= options_.memory_limit) return absl::OkStatus();
  return TooLarge(absl::StrCat("dense values of ", bytes, " bytes"));
}

absl::Status ServerState::TooLarge(absl::string_view what) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "server ", options_.server, ": ", what, " do not fit into the ",
      options_.memory_limit, " bytes that it may use, of which ", Bytes(),
      " are in use; use more servers (--num_ps_pods), more memory "
      "(--ps_memory_limit) or fewer rows (--embedding_max_rows)"));
}

bool ServerState::NearlyFull() const {
  return options_.memory_limit > 0 &&
         IsNearlyFull(Bytes(), options_.memory_limit);
}

// ---- parts of requests ----

absl::Status ServerState::CountParts(
    const google::protobuf::RepeatedPtrField<v1::PsTablePart>& parts,
    absl::string_view payload, uint64_t& rows, uint64_t& values) const {
  std::set<uint32_t> seen;
  for (const v1::PsTablePart& part : parts) {
    if (part.table() >= tables_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table number ", part.table(), " of ", tables_.size()));
    }
    const EmbeddingTable& table = *tables_[part.table()];
    if (!seen.insert(part.table()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.name(), " is there twice"));
    }
    // Each has an id in the payload: sums cannot overflow.
    if (part.rows() > payload.size() / sizeof(int64_t)) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.name(), ": ", part.rows(), " rows"));
    }
    rows += part.rows();
    values += part.rows() * table.dim();
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckIds(const v1::PsTablePart& part,
                                   const char* bytes) const {
  const EmbeddingTable& table = *tables_[part.table()];
  const uint64_t hash = table.hash();
  const auto* ids = reinterpret_cast<const int64_t*>(bytes);
  for (uint64_t i = 0; i < part.rows(); ++i) {
    if (i > 0 && ids[i] <= ids[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table ", table.name(), ": id ", ids[i], " after ", ids[i - 1]));
    }
    const int owner = map_.owner(BucketOf(HashRow(hash, ids[i])));
    if (owner != options_.server) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.name(), ": row ", ids[i],
                       " is on server ", owner, ", not on ", options_.server));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerState::Pull(const v1::PsPull& pull,
                               absl::string_view payload, v1::PsReply& reply,
                               Buffer& out) const {
  ELASTICDL_RETURN_IF_ERROR(CheckReady(pull.map_version()));
  uint64_t rows = 0;
  uint64_t values = 0;
  ELASTICDL_RETURN_IF_ERROR(CountParts(pull.parts(), payload, rows, values));
  if (payload.size() != rows * sizeof(int64_t)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pull of ", rows, " rows with ", payload.size(), " bytes of ids"));
  }
  reply.set_version(version_);
  reply.set_dense(pull.dense() && pull.dense_version() != dense_version_);
  reply.set_dense_version(dense_version_);
  if (reply.dense()) values += DenseValues();
  if (values * sizeof(float) > kMaxPayloadBytes) {
    return absl::InvalidArgumentError("a pull of too many rows");
  }
  auto* to = reinterpret_cast<float*>(out.Resize(values * sizeof(float)));
  if (to == nullptr && values > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an answer of ", values, " values"));
  }
  if (reply.dense() && DenseValues() > 0) {
    std::memcpy(to, dense_[0].data(), DenseValues() * sizeof(float));
    to += DenseValues();
  }
  size_t at = 0;
  for (const v1::PsTablePart& part : pull.parts()) {
    ELASTICDL_RETURN_IF_ERROR(CheckIds(part, payload.data() + at));
    const EmbeddingTable& table = *tables_[part.table()];
    table.Pull({Ids(payload, at), part.rows()}, to);
    at += part.rows() * sizeof(int64_t);
    to += part.rows() * table.dim();
  }
  return absl::OkStatus();
}

// ---- what it holds ----

size_t ServerState::EmptyBytes() const {
  return dense_.size() * DenseValues() * sizeof(float) +
         tables_.size() * EmbeddingTable::empty_bytes();
}

size_t ServerState::Bytes() const {
  size_t bytes = dense_.size() * DenseValues() * sizeof(float);
  for (const auto& table : tables_) {
    bytes += table->bytes();
  }
  for (const auto& [name, staged] : staged_) bytes += staged.payload.size();
  for (const auto& [bucket, leaving] : leaving_) {
    bytes += leaving.payload.size();
  }
  return bytes;
}

void ServerState::FillStatus(v1::PsStatus& status) const {
  status.set_initialized(initialized_);
  status.set_dense_values(static_cast<int64_t>(DenseValues()));
  for (const auto& table : tables_) {
    v1::PsTableStatus& out = *status.add_tables();
    out.set_name(table->name());
    out.set_rows(table->rows());
    out.set_bytes(static_cast<int64_t>(table->bytes()));
  }
}

void ServerState::FillMap(v1::PsMap& map) const {
  map.set_version(map_.version());
  map.set_servers(map_.servers());
  const auto& owners = map_.owners();
  map.mutable_owners()->Assign(owners.begin(), owners.end());
}

uint64_t ServerState::Digest() const {
  std::string bytes;
  // The sets are sorted, so equal states give equal bytes.
  Header(0).SerializeToString(&bytes);
  uint64_t digest = MixHash(Crc32c(bytes));
  const auto add = [&](absl::string_view data, uint64_t salt) {
    digest += MixHash(Crc32c(data) + (salt << 32));
  };
  for (size_t i = 0; i < dense_.size(); ++i) {
    add({reinterpret_cast<const char*>(dense_[i].data()),
         dense_[i].size() * sizeof(float)},
        i);
  }
  std::string record;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const EmbeddingTable& table = *tables_[t];
    for (int bucket = 0; bucket < kBuckets; ++bucket) {
      table.ForEach(bucket, [&](int64_t id, const char* row) {
        record.assign(reinterpret_cast<const char*>(&id), sizeof(id));
        record.append(row, table.row_bytes());
        add(record, 100 + t);
      });
      if (table.counts()) {
        add(table.sightings(bucket), 10000 + t * kBuckets + bucket);
      }
    }
  }
  uint64_t salt = 50;
  for (const absl::string_view payload : Payloads()) add(payload, salt++);
  return digest;
}

// ---- snapshots ----

v1::PsSnapshot ServerState::Header(int64_t log_position) const {
  v1::PsSnapshot header;
  header.set_log_position(log_position);
  *header.mutable_definition() = definition_;
  FillMap(*header.mutable_map());
  header.set_server(options_.server);
  header.set_initialized(initialized_);
  if (restoring_.has_value()) header.set_restoring(*restoring_);
  header.set_version(version_);
  header.set_dense_version(dense_version_);
  *header.mutable_applied() = applied_.ToProto();
  for (const auto& [bucket, arrived] : arrived_) {
    v1::PsSnapshot::Arrived& out = *header.add_arrived();
    out.set_bucket(bucket);
    *out.mutable_there() = arrived.there.ToProto();
    *out.mutable_here_before() = arrived.here_before.ToProto();
    out.set_ahead(arrived.ahead);
  }
  for (const int bucket : awaited_) header.add_awaited(bucket);
  for (const auto& [name, staged] : staged_) {
    v1::PsSnapshot::Staged& out = *header.add_staged();
    *out.mutable_push() = staged.push;
    out.set_bytes(staged.payload.size());
  }
  for (const auto& [bucket, leaving] : leaving_) {
    v1::PsSnapshot::Leaving& out = *header.add_leaving();
    *out.mutable_import() = leaving.import;
    out.set_bytes(leaving.payload.size());
  }
  header.set_dense_values(DenseValues());
  header.set_dense_arrays(static_cast<uint32_t>(dense_.size()));
  for (const auto& table : tables_) {
    v1::PsSnapshot::Table& out = *header.add_tables();
    out.set_rows(static_cast<uint64_t>(table->rows()));
    out.set_row_bytes(table->record_bytes());
  }
  return header;
}

std::vector<absl::string_view> ServerState::Payloads() const {
  std::vector<absl::string_view> payloads;
  for (const auto& [name, staged] : staged_) {
    payloads.push_back(staged.payload);
  }
  for (const auto& [bucket, leaving] : leaving_) {
    payloads.push_back(leaving.payload);
  }
  return payloads;
}

std::vector<std::string*> ServerState::mutable_payloads() {
  std::vector<std::string*> payloads;
  for (auto& [name, staged] : staged_) payloads.push_back(&staged.payload);
  for (auto& [bucket, leaving] : leaving_) {
    payloads.push_back(&leaving.payload);
  }
  return payloads;
}

absl::StatusOr<ServerState> ServerState::FromHeader(
    Options options, const v1::PsSnapshot& header) {
  ServerState state(options);
  if (header.server() != options.server) {
    return absl::FailedPreconditionError(
        absl::StrCat("a snapshot of server ", header.server(), " for server ",
                     options.server));
  }
  if (header.definition().optimizer().empty()) return state;
  ELASTICDL_RETURN_IF_ERROR(state.CheckDefinition(header.definition()));
  ELASTICDL_RETURN_IF_ERROR(state.Define(header.definition()));
  if (header.map().owners_size() > 0) {
    const v1::PsMap& map = header.map();
    ELASTICDL_ASSIGN_OR_RETURN(
        const BucketMap checked,
        BucketMap::Make(map.version(), map.servers(),
                        {map.owners().begin(), map.owners().end()}));
    // Before memory is taken for them. Not CheckMap: it may be a map that
    // servers were scaled to.
    if (state.DenseValuesIn(checked) != header.dense_values()) {
      return absl::DataLossError("a snapshot that contradicts itself");
    }
    ELASTICDL_RETURN_IF_ERROR(state.SetMap(map));
  }
  state.initialized_ = header.initialized();
  if (header.has_restoring()) state.restoring_ = header.restoring();
  state.version_ = header.version();
  state.dense_version_ = header.dense_version();
  state.applied_ = AppliedSet::FromProto(header.applied());
  for (const auto& arrived : header.arrived()) {
    state.arrived_[arrived.bucket()] = {
        AppliedSet::FromProto(arrived.there()),
        AppliedSet::FromProto(arrived.here_before()), arrived.ahead()};
  }
  state.awaited_.insert(header.awaited().begin(), header.awaited().end());
  for (const auto& staged : header.staged()) {
    state.staged_[NameOf(staged.push())] = {staged.push(),
                                            std::string(staged.bytes(), '\0')};
  }
  for (const auto& leaving : header.leaving()) {
    state.leaving_[leaving.import().bucket()] = {
        leaving.import(), std::string(leaving.bytes(), '\0')};
  }
  bool same = header.dense_values() == state.DenseValues() &&
              header.dense_arrays() == state.dense_.size() &&
              header.tables_size() == static_cast<int>(state.tables_.size());
  for (int t = 0; same && t < header.tables_size(); ++t) {
    same = header.tables(t).row_bytes() ==
           state.tables_[static_cast<size_t>(t)]->record_bytes();
  }
  if (!same) return absl::DataLossError("a snapshot that contradicts itself");
  return state;
}

}  // namespace elasticdl::ps
