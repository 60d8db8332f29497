// A server that is one of two copies of a part of the model.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "server_impl.h"

namespace elasticdl::ps {

// ---- what it may answer ----

absl::Status ServerImpl::CheckAnswers() const {
  if (broken_) return absl::UnavailableError("the server is ending");
  if (replicator_ == nullptr) return absl::OkStatus();
  return replicator_->CheckPrimary().status();
}

absl::StatusOr<ServerImpl::Place> ServerImpl::CheckPlace() const {
  Place place;
  if (replicator_ == nullptr) return place;
  ELASTICDL_ASSIGN_OR_RETURN(place.term, replicator_->CheckPrimary());
  place.position = log_->position();
  return place;
}

absl::StatusOr<ServerImpl::Place> ServerImpl::PlaceOfLast() const {
  absl::StatusOr<Place> place = CheckPlace();
  if (place.ok() && log_ != nullptr) place->head = log_->last_head();
  return place;
}

absl::Status ServerImpl::Await(const Place& place, absl::Duration most,
                               absl::string_view header,
                               absl::string_view payload) {
  if (replicator_ == nullptr) return absl::OkStatus();
  std::vector<iovec> frame;
  if (place.head.has_value()) frame = FrameParts(*place.head, header, payload);
  replicator_->Send(place.term, place.position, std::move(frame));
  return replicator_->Await(place.term, place.position, most);
}

absl::Status ServerImpl::Settle() {
  absl::StatusOr<Place> place = Place();
  {
    ReaderMutexLock lock(state_mu_);
    place = CheckPlace();
  }
  ELASTICDL_RETURN_IF_ERROR(place.status());
  return Await(*place, absl::InfiniteDuration());
}

// ---- what the master says ----

void ServerImpl::Assign(const v1::PsAssignment& assignment) {
  v1::PsPartState state;
  bool begins = false;
  {
    WriterMutexLock lock(state_mu_);
    const int64_t before = replicator_->term();
    begins = replicator_->Assign(assignment, log_->position()) &&
             assignment.primary() && assignment.term() > before;
    state.set_serving(state_.version());
    if (begins && audit_ != nullptr) {
      NoteAudit(audit_->Begin(assignment.term(), log_->position()));
    }
  }
  // Whoever waits for a bucket may have to ask another copy.
  NoteMove();
  if (!begins) return replicator_->Ask();
  LogInfo("primary of part ", options_.server, " in term ", assignment.term(),
          ", version ", state.serving());
  state.set_part(options_.server);
  state.set_term(assignment.term());
  options_.tell(state);
  replicator_->Ask();
}

v1::PsCopy ServerImpl::Describe() const {
  v1::PsCopy copy;
  ReaderMutexLock lock(state_mu_);
  copy.set_part(options_.server);
  copy.set_version(state_.version());
  copy.set_incarnation(incarnation_);
  replicator_->Describe(copy);
  return copy;
}

void ServerImpl::NoteAudit(const absl::Status& written) {
  if (written.ok()) return;
  broken_ = true;
  End(written);
}

// ---- what the primary says ----

absl::Status ServerImpl::BeginFollow(int64_t connection, int64_t term) {
  WriterMutexLock lock(state_mu_);
  ELASTICDL_RETURN_IF_ERROR(replicator_->CheckFollow(term));
  // A thread that was held up: its primary has begun anew since then.
  if (term == followed_term_ && connection < followed_connection_) {
    return absl::UnavailableError("another connection has taken over");
  }
  followed_connection_ = connection;
  followed_term_ = term;
  return absl::OkStatus();
}

absl::Status ServerImpl::CheckFollow(int64_t connection) const {
  ELASTICDL_RETURN_IF_ERROR(replicator_->CheckFollow(followed_term_));
  if (connection == followed_connection_ && !broken_) return absl::OkStatus();
  return absl::UnavailableError("another connection has taken over");
}

absl::Status ServerImpl::Replace(int64_t connection, ServerState state,
                                 const std::string& snapshot,
                                 int64_t position) {
  WriterMutexLock lock(state_mu_);
  ELASTICDL_RETURN_IF_ERROR(CheckFollow(connection));
  ELASTICDL_RETURN_IF_ERROR(log_->Restart(snapshot, position));
  state_ = std::move(state);
  if (audit_ == nullptr) return absl::OkStatus();
  // After the log: what a successor finds in it and not in the audit must be of
  // the term that the audit ends with.
  absl::Status written = audit_->Follow(followed_term_, position);
  NoteAudit(written);
  return written;
}

absl::Status ServerImpl::Follow(int64_t connection, const v1::PsEntry& entry,
                                const Frame& frame) {
  bool snapshot = false;
  {
    WriterMutexLock lock(state_mu_);
    ELASTICDL_RETURN_IF_ERROR(CheckFollow(connection));
    if (frame.number != log_->position()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "entry ", frame.number, " instead of ", log_->position()));
    }
    ELASTICDL_RETURN_IF_ERROR(state_.CheckLogged(entry, frame.payload));
    ELASTICDL_RETURN_IF_ERROR(
        ApplyLogged(log_->AppendFrame(frame.whole), entry, frame.payload));
    snapshot = SnapshotDue();
  }
  if (snapshot) WantSnapshot();
  return absl::OkStatus();
}

void ServerImpl::RemoveAside() {
  if (!aside_.exchange(false)) return;
  const absl::Status removed = PushLog::RemoveAside(options_.log_dir);
  if (!removed.ok()) LogWarning("a damaged log: ", removed.message());
}

absl::StatusOr<int64_t> ServerImpl::Followed(int64_t connection, bool current) {
  if (current) RemoveAside();
  ReaderMutexLock lock(state_mu_);
  ELASTICDL_RETURN_IF_ERROR(CheckFollow(connection));
  replicator_->OnFollowed();
  return log_->position();
}

}  // namespace elasticdl::ps
