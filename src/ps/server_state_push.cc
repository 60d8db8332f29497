// Gradients: applied as they come, or staged and applied together.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "floats.h"
#include "memory_pressure.h"
#include "server_state.h"

namespace elasticdl::ps {
namespace {

std::string Describe(const v1::PsPush& push) {
  return absl::StrCat("records ", push.begin(), " to ", push.end(), " of ",
                      push.shard(), ", epoch ", push.epoch());
}

bool IsRate(double rate) { return std::isfinite(rate) && rate >= 0; }

v1::PsPush ToPush(const v1::PsRanges& ranges) {
  v1::PsPush push;
  push.set_shard(ranges.shard());
  push.set_epoch(ranges.epoch());
  if (ranges.bounds_size() == 2) {
    push.set_begin(ranges.bounds(0));
    push.set_end(ranges.bounds(1));
  }
  return push;
}

}  // namespace

bool ServerState::Presence::everywhere() const {
  return here && std::all_of(arrived.begin(), arrived.end(),
                             [](const auto& entry) { return entry.second; });
}

bool ServerState::Presence::nowhere() const {
  return !here && std::none_of(arrived.begin(), arrived.end(),
                               [](const auto& entry) { return entry.second; });
}

bool ServerState::Presence::In(int bucket) const {
  const auto found = arrived.find(bucket);
  return found == arrived.end() ? here : found->second;
}

ServerState::Name ServerState::NameOf(const v1::PsPush& push) {
  return {push.shard(), push.epoch(), push.begin(), push.end()};
}

// ---- checks ----

absl::Status ServerState::CheckName(const v1::PsPush& push,
                                    Presence& presence) const {
  if (push.begin() < 0 || push.begin() >= push.end() || push.epoch() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a push of ", Describe(push)));
  }
  using Answer = AppliedSet::Answer;
  const Answer here = applied_.Test(push);
  bool torn = here == Answer::kTorn;
  presence.here = here == Answer::kThere || here == Answer::kForgotten;
  if (here != Answer::kForgotten) {
    for (const auto& [bucket, arrived] : arrived_) {
      const Answer there = arrived.there.Test(push);
      const Answer before = arrived.here_before.Test(push);
      torn |= there == Answer::kTorn || before == Answer::kTorn;
      // Applied here after the bucket had come means: to the bucket, too.
      presence.arrived[bucket] =
          there != Answer::kNew || (presence.here && before == Answer::kNew);
    }
  }
  if (torn) {
    return absl::InvalidArgumentError(
        absl::StrCat("of ", Describe(push), " a part is in the model already"));
  }
  if (presence.everywhere()) {
    return absl::AlreadyExistsError(
        absl::StrCat(Describe(push), " are in the model"));
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckPushSize(const v1::PsPush& push,
                                        absl::string_view payload) const {
  uint64_t rows = 0;
  uint64_t values = 0;
  ELASTICDL_RETURN_IF_ERROR(CountParts(push.parts(), payload, rows, values));
  if (push.dense()) values += DenseValues();
  const uint64_t expected = rows * sizeof(int64_t) + values * sizeof(float);
  if (payload.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a push of ", payload.size(), " bytes instead of ", expected));
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckPush(const v1::PsPush& push,
                                    absl::string_view payload) const {
  ELASTICDL_RETURN_IF_ERROR(CheckReady(push.map_version()));
  Presence presence;
  ELASTICDL_RETURN_IF_ERROR(CheckName(push, presence));
  if (!IsRate(push.learning_rate())) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate ", push.learning_rate()));
  }
  // Its own epoch would be forgotten, and the rest of that with it.
  if (push.oldest_epoch() > push.epoch()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a push of ", Describe(push), " after epoch ",
                     push.oldest_epoch(), " has begun"));
  }
  if (push.stage()) {
    const auto staged = staged_.find(NameOf(push));
    if (staged != staged_.end() &&
        staged->second.push.base_version() >= push.base_version()) {
      return absl::AlreadyExistsError(
          absl::StrCat(Describe(push), " are staged"));
    }
  }
  ELASTICDL_RETURN_IF_ERROR(CheckPushSize(push, payload));
  size_t at = 0;
  for (const v1::PsTablePart& part : push.parts()) {
    ELASTICDL_RETURN_IF_ERROR(CheckIds(part, payload.data() + at));
    at += part.rows() * sizeof(int64_t);
  }
  ELASTICDL_RETURN_IF_ERROR(CheckMemory(push, payload));
  return CheckFinite(push, payload);
}

absl::Status ServerState::CheckMemory(const v1::PsPush& push,
                                      absl::string_view payload) const {
  if (options_.memory_limit == 0) return absl::OkStatus();
  size_t bytes = Bytes();
  size_t most = push.stage() ? payload.size() : 0;
  for (const v1::PsTablePart& part : push.parts()) {
    most += tables_[part.table()]->MostGrowth(part.rows());
  }
  if (bytes + most <= options_.memory_limit) return absl::OkStatus();
  // Near the limit it counts that rows which are there cost nothing.
  const bool grow = !IsNearlyFull(bytes, options_.memory_limit);
  if (push.stage()) bytes += payload.size();
  size_t at = 0;
  for (const v1::PsTablePart& part : push.parts()) {
    const EmbeddingTable& table = *tables_[part.table()];
    const EmbeddingTable::Growth growth =
        table.GrowthBy({Ids(payload, at), part.rows()}, grow);
    bytes += growth.bytes;
    at += part.rows() * sizeof(int64_t);
    if (growth.rows > 0 && bytes > options_.memory_limit) {
      return TooLarge(absl::StrCat(growth.rows, " more rows of table ",
                                   table.name(), ", which has ", table.rows(),
                                   " there,"));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckFinite(const v1::PsPush& push,
                                      absl::string_view payload) const {
  const Gradient gradient = View(push, payload);
  // What a buffer holds is the model's business (a mask may be infinite).
  if (gradient.dense != nullptr && !AllFinite(gradient.dense, first_buffer_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a gradient of the dense parameters is not finite (",
                     Describe(push), ")"));
  }
  for (const Gradient::Rows& rows : gradient.rows) {
    const EmbeddingTable& table = *tables_[rows.table];
    if (!AllFinite(rows.values, rows.ids.size() * table.dim())) {
      return absl::InvalidArgumentError(
          absl::StrCat("a gradient of table ", table.name(), " is not finite (",
                       Describe(push), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerState::CheckCommit(const v1::PsCommit& commit) const {
  // First: one that is said again may come when buckets have moved since, or
  // are on their way.
  if (initialized_ && commit.version() <= version_) {
    return absl::AlreadyExistsError(
        absl::StrCat("version ", commit.version(), " is in the model"));
  }
  ELASTICDL_RETURN_IF_ERROR(CheckReady(commit.map_version()));
  if (commit.version() != version_ + 1) {
    return absl::NotFoundError(absl::StrCat("version ", version_ + 1,
                                            " must come before version ",
                                            commit.version()));
  }
  if (!IsRate(commit.learning_rate())) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate ", commit.learning_rate()));
  }
  std::set<Name> names;
  for (const v1::PsRanges& ranges : commit.pushes()) {
    const v1::PsPush push = ToPush(ranges);
    if (staged_.count(NameOf(push)) == 0) {
      return absl::NotFoundError(absl::StrCat(
          Describe(push), " are not staged on server ", options_.server));
    }
    if (!names.insert(NameOf(push)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(push), " are there twice"));
    }
  }
  if (names.empty()) {
    return absl::InvalidArgumentError("a version without any push");
  }
  return absl::OkStatus();
}

// ---- changes ----

ServerState::Gradient ServerState::View(const v1::PsPush& push,
                                        absl::string_view payload) const {
  Gradient gradient;
  size_t at = 0;
  for (const v1::PsTablePart& part : push.parts()) {
    gradient.rows.push_back(
        {part.table(), {Ids(payload, at), part.rows()}, nullptr});
    at += part.rows() * sizeof(int64_t);
  }
  const float* values = Floats(payload, at);
  if (push.dense()) {
    gradient.dense = values;
    values += DenseValues();
  }
  for (Gradient::Rows& rows : gradient.rows) {
    rows.values = values;
    values += rows.ids.size() * tables_[rows.table]->dim();
  }
  return gradient;
}

void ServerState::ForgetBefore(int32_t epoch) {
  if (epoch <= applied_.oldest_epoch()) return;
  // Of records that were given up.
  for (auto it = staged_.begin(); it != staged_.end();) {
    it = it->second.push.epoch() < epoch ? staged_.erase(it) : std::next(it);
  }
  applied_.ForgetBefore(epoch);
  for (auto it = arrived_.begin(); it != arrived_.end();) {
    it->second.there.ForgetBefore(epoch);
    it->second.here_before.ForgetBefore(epoch);
    it = it->second.same() ? arrived_.erase(it) : std::next(it);
  }
}

void ServerState::Remember(const v1::PsPush& push) {
  using Answer = AppliedSet::Answer;
  // All buckets have it now, so that nothing is special about it in any.
  for (auto it = arrived_.begin(); it != arrived_.end();) {
    Arrived& arrived = it->second;
    if (arrived.here_before.Test(push) == Answer::kThere) ++arrived.ahead;
    if (arrived.there.Test(push) == Answer::kThere) --arrived.ahead;
    arrived.there.Remove(push);
    arrived.here_before.Remove(push);
    it = arrived.same() ? arrived_.erase(it) : std::next(it);
  }
  applied_.Add(push);
}

absl::Status ServerState::ApplyPush(const v1::PsPush& push,
                                    absl::string_view payload) {
  if (push.stage()) {
    staged_[NameOf(push)] = {push, std::string(payload)};
    return absl::OkStatus();
  }
  ForgetBefore(push.oldest_epoch());
  Presence presence;
  ELASTICDL_RETURN_IF_ERROR(CheckName(push, presence));
  effect_.catch_up = presence.here;
  for (const auto& [bucket, there] : presence.arrived) {
    if (there != presence.here) effect_.buckets.push_back(bucket);
  }
  Remember(push);
  double rate = push.has_learning_rate() ? push.learning_rate()
                                         : optimizer_->learning_rate();
  if (definition_.lr_staleness_modulation()) {
    const int64_t base = std::clamp<int64_t>(push.base_version(), 0, version_);
    rate /= static_cast<double>(std::max<int64_t>(1, version_ - base));
  }
  // A bucket that catches up does not make a version: the others have it.
  if (!presence.here) ++version_;
  Gradient gradient = View(push, payload);
  if (!presence.nowhere()) {
    ELASTICDL_RETURN_IF_ERROR(ApplyRows());
    return UpdateMissing(gradient, rate, presence);
  }
  if (replay_ != nullptr) {
    auto& rows = gradient.rows;
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [&](const Gradient::Rows& part) {
                                return Collect(part, rate);
                              }),
               rows.end());
  }
  return Update(gradient, rate);
}

bool ServerState::Collect(const Gradient::Rows& rows, double rate) {
  const EmbeddingTable& table = *tables_[rows.table];
  if (!table.splits()) return false;
  // What others evict near the limit depends on the rows of all.
  if (options_.memory_limit > 0 &&
      !std::all_of(tables_.begin(), tables_.end(),
                   [](const auto& other) { return other->splits(); })) {
    return false;
  }
  replay_->Add(*tables_[rows.table], rows.ids, rows.values, rate, step());
  return true;
}

void ServerState::CollectRows(bool collect) {
  replay_ = collect ? std::make_unique<RowReplay>() : nullptr;
}

absl::Status ServerState::ApplyRows() {
  return replay_ == nullptr ? absl::OkStatus() : replay_->Finish();
}

absl::Status ServerState::Update(const Gradient& gradient, double rate) {
  if (gradient.dense != nullptr) {
    UpdateDense(0, DenseValues(), gradient.dense, rate);
  }
  size_t bytes = LimitedBytes();
  for (const Gradient::Rows& rows : gradient.rows) {
    ELASTICDL_RETURN_IF_ERROR(
        PushTo(*tables_[rows.table], rows.ids, rows.values, rate, bytes));
  }
  return absl::OkStatus();
}

absl::Status ServerState::PushTo(EmbeddingTable& table,
                                 absl::Span<const int64_t> ids,
                                 const float* gradients, double rate,
                                 size_t& bytes) {
  const bool grow = !IsNearlyFull(bytes, options_.memory_limit);
  bytes -= std::min(bytes, table.bytes());
  absl::Status pushed = table.Push(ids, gradients, rate, step(), grow);
  bytes += table.bytes();
  return pushed;
}

absl::Status ServerState::UpdateMissing(const Gradient& gradient, double rate,
                                        const Presence& presence) {
  size_t at = 0;
  for (const DenseChunk& chunk : chunks_) {
    const auto size = static_cast<size_t>(chunk.size);
    if (gradient.dense != nullptr && !presence.In(chunk.bucket)) {
      UpdateDense(at, size, gradient.dense + at, rate);
    }
    at += size;
  }
  size_t bytes = LimitedBytes();
  for (const Gradient::Rows& rows : gradient.rows) {
    EmbeddingTable& table = *tables_[rows.table];
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      const int bucket = BucketOf(HashRow(table.hash(), rows.ids[i]));
      if (presence.In(bucket)) continue;
      ids.push_back(rows.ids[i]);
      const float* from = rows.values + i * table.dim();
      values.insert(values.end(), from, from + table.dim());
    }
    ELASTICDL_RETURN_IF_ERROR(PushTo(table, ids, values.data(), rate, bytes));
  }
  return absl::OkStatus();
}

void ServerState::UpdateDense(size_t at, size_t size, const float* gradients,
                              double rate) {
  if (size == 0) return;
  ++dense_version_;
  const size_t end = at + size;
  if (end > first_buffer_) {
    const size_t from = std::max(at, first_buffer_);
    std::copy(gradients + (from - at), gradients + size,
              dense_[0].begin() + static_cast<int64_t>(from));
    if (at >= first_buffer_) return;
    size = first_buffer_ - at;
  }
  std::vector<float*> slots;
  for (size_t i = 1; i < dense_.size(); ++i) {
    slots.push_back(dense_[i].data() + at);
  }
  optimizer_->Apply(dense_[0].data() + at, gradients, slots.data(), size, rate,
                    step());
}

absl::Status ServerState::ApplyCommit(const v1::PsCommit& commit) {
  ForgetBefore(commit.oldest_epoch());
  version_ = commit.version();
  const double rate = commit.has_learning_rate() ? commit.learning_rate()
                                                 : optimizer_->learning_rate();
  std::vector<Staged> staged;
  double records = 0;
  for (const v1::PsRanges& ranges : commit.pushes()) {
    const auto found = staged_.find(NameOf(ToPush(ranges)));
    staged.push_back(std::move(found->second));
    staged_.erase(found);
    records += static_cast<double>(ranges.bounds(1) - ranges.bounds(0));
    Remember(staged.back().push);
  }
  // The mean of one is itself, bit by bit.
  if (staged.size() == 1) {
    return Update(View(staged[0].push, staged[0].payload), rate);
  }
  std::vector<float> dense;
  std::vector<std::map<int64_t, std::vector<float>>> rows(tables_.size());
  for (const Staged& one : staged) {
    const Gradient gradient = View(one.push, one.payload);
    const auto weight = static_cast<float>(
        static_cast<double>(one.push.end() - one.push.begin()) / records);
    if (gradient.dense != nullptr) {
      dense.resize(DenseValues());
      for (size_t i = 0; i < dense.size(); ++i) {
        dense[i] += weight * gradient.dense[i];
      }
    }
    for (const Gradient::Rows& part : gradient.rows) {
      const size_t dim = tables_[part.table]->dim();
      for (size_t i = 0; i < part.ids.size(); ++i) {
        std::vector<float>& sum = rows[part.table][part.ids[i]];
        sum.resize(dim);
        for (size_t d = 0; d < dim; ++d) {
          sum[d] += weight * part.values[i * dim + d];
        }
      }
    }
  }
  if (!dense.empty()) UpdateDense(0, dense.size(), dense.data(), rate);
  size_t bytes = LimitedBytes();
  for (size_t t = 0; t < rows.size(); ++t) {
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (const auto& [id, sum] : rows[t]) {
      ids.push_back(id);
      values.insert(values.end(), sum.begin(), sum.end());
    }
    ELASTICDL_RETURN_IF_ERROR(
        PushTo(*tables_[t], ids, values.data(), rate, bytes));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
