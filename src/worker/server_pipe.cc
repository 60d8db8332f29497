#include "server_pipe.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "gradient_clip.h"

namespace elasticdl::worker {
namespace {

// Here, because each server sees only a part of the gradient. `rows` are of
// this minibatch and nobody else's.
void Clip(Replica& replica, const std::vector<ps::PushRows>& rows) {
  if (replica.clip_norm() <= 0) return;
  std::vector<absl::Span<float>> arrays = {
      {replica.parameters().gradients(), replica.parameters().size()}};
  for (const ps::PushRows& part : rows) {
    const auto dim =
        static_cast<size_t>(replica.network().tables()[part.table].dim);
    arrays.push_back(
        {const_cast<float*>(part.gradients), part.ids.size() * dim});
  }
  ClipByGlobalNorm(replica.clip_norm(), arrays);
}

}  // namespace

ServerPipe::ServerPipe(ps::Client& client, Replica& replica, bool overlap)
    : client_(client),
      replica_(replica),
      overlap_(overlap),
      rows_(
          [this](absl::Span<const ps::PullRows> rows) {
            return calls_.Run([&] { return PullRowsNow(rows); });
          },
          replica.network().tables()),
      dense_(replica, /*copies=*/overlap) {}

// ---- pulls ----

std::shared_ptr<ServerPipe::Pulled> ServerPipe::Prepare(
    const Minibatch& minibatch, const Features& features, bool dense) const {
  auto pulled = std::make_shared<Pulled>();
  pulled->minibatch = &minibatch;
  pulled->dense = dense;
  pulled->rows = rows_.MakeRoom(sources_.Predict(features));
  return pulled;
}

absl::Status ServerPipe::Fetch(Pulled& pulled) {
  if (!pulled.dense && pulled.rows.empty()) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.pull"));
  std::vector<ps::PullRows> views;
  views.reserve(pulled.rows.size());
  for (const TableRows& rows : pulled.rows) views.push_back(rows.View());
  const trace::ScopedRequest timed(replica_.step_clock(), trace::Kind::kPull);
  ELASTICDL_ASSIGN_OR_RETURN(
      pulled.version,
      client_.Pull(pulled.dense ? dense_.pull_target() : nullptr, views));
  pulled.versions = client_.versions();
  return absl::OkStatus();
}

void ServerPipe::PullAhead(const Minibatch& minibatch, const Features& features,
                           bool dense) {
  if (!overlap_) return;
  std::shared_ptr<Pulled> pulled = Prepare(minibatch, features, dense);
  if (!dense && pulled->rows.empty()) return;
  pulled->ticket = calls_.Begin([this, pulled] { return Fetch(*pulled); });
  ahead_ = std::move(pulled);
}

absl::Status ServerPipe::Pull(const Minibatch& minibatch,
                              const Features& features, bool dense) {
  std::shared_ptr<Pulled> pulled = std::move(ahead_);
  ahead_ = nullptr;
  const bool there = pulled != nullptr && pulled->minibatch == &minibatch &&
                     pulled->dense == dense;
  // It may be on its way to the place where this one will be.
  const absl::Status fetched =
      pulled == nullptr ? absl::OkStatus() : calls_.Wait(pulled->ticket);
  if (there) ELASTICDL_RETURN_IF_ERROR(fetched);
  if (!there) {
    pulled = Prepare(minibatch, features, dense);
    ELASTICDL_RETURN_IF_ERROR(calls_.Run([&] { return Fetch(*pulled); }));
  }
  if (dense) {
    version_ = pulled->version;
    dense_.TakePulled();
  }
  base_ = std::move(pulled->versions);
  rows_.Begin(std::move(pulled->rows));
  return absl::OkStatus();
}

absl::Status ServerPipe::PullRowsNow(absl::Span<const ps::PullRows> rows) {
  ELASTICDL_RETURN_IF_ERROR(client_.Pull(nullptr, rows).status());
  NoteVersions(client_.versions());
  return absl::OkStatus();
}

void ServerPipe::NoteVersions(const std::vector<int64_t>& versions) {
  if (base_.size() != versions.size()) {
    base_ = versions;
    return;
  }
  for (size_t i = 0; i < versions.size(); ++i) {
    base_[i] = std::min(base_[i], versions[i]);
  }
}

int64_t ServerPipe::oldest_version() const {
  return base_.empty() ? version_
                       : std::min(version_, *std::min_element(base_.begin(),
                                                              base_.end()));
}

absl::Status ServerPipe::Refresh() {
  ELASTICDL_RETURN_IF_ERROR(Finish());
  ELASTICDL_ASSIGN_OR_RETURN(version_, client_.Pull(dense_.pull_target(), {}));
  dense_.TakePulled();
  rows_.Begin();
  return absl::OkStatus();
}

// ---- pushes ----

void ServerPipe::Push(v1::PsPush push, const Features& features) {
  if (!rows_.all_pulled()) sources_.Learn(features, rows_.asked());
  // Shared with the call: the gradients must live until it ends.
  auto rows = std::make_shared<RowGradients>(rows_.TakeGradients());
  Clip(replica_, rows->parts);
  const float* dense = dense_.Gradients();
  auto call = [this, push = std::move(push), dense, rows,
               base = std::move(base_)]() -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("worker.push"));
    const trace::ScopedRequest timed(replica_.step_clock(), trace::Kind::kPush);
    ELASTICDL_RETURN_IF_ERROR(client_.Push(push, dense, rows->parts, base));
    return Failpoint("worker.pushed");
  };
  base_.clear();
  if (overlap_) {
    push_ = calls_.Begin(std::move(call));
    return;
  }
  push_ = std::make_shared<ServerCalls::Ticket>();
  push_->status = calls_.Run(call);
  push_->done = true;
}

absl::Status ServerPipe::FinishPush() {
  if (push_ == nullptr) return absl::OkStatus();
  // One that failed stays failed: its records must never be reported.
  absl::Status status = calls_.Wait(push_);
  if (status.ok()) push_ = nullptr;
  return status;
}

absl::Status ServerPipe::Finish() {
  calls_.Drain();
  ahead_ = nullptr;
  return FinishPush();
}

}  // namespace elasticdl::worker
