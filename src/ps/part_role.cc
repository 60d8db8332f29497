#include "part_role.h"

#include "absl/strings/str_cat.h"

namespace elasticdl::ps {
namespace {

// Entries that a backup may be behind when the others begin to wait for it:
// more than workers have under way, and few enough not to be noticed.
constexpr int64_t kNearlyAll = 64;

}  // namespace

bool PartRole::Assign(const v1::PsAssignment& assignment) {
  if (assignment.term() < term_) return false;
  if (assignment.term() > term_) {
    term_ = assignment.term();
    state_ = assignment.primary() ? State::kAlone : State::kBackup;
    acked_ = -1;
    followed_ = false;
    backup_address_.clear();
    if (assignment.primary() && assignment.alone() == kHandedOver) {
      state_ = State::kAsking;
      lost_.set_number(lost_.number() + 1);
      lost_.set_reason("it was handed over");
    }
  }
  // In a term a copy is one thing only.
  if (assignment.primary() != primary()) return false;
  backup_address_ = assignment.backup_address();
  if (state_ == State::kAsking && assignment.alone() == lost_.number()) {
    state_ = State::kAlone;
    acked_ = -1;
  }
  return true;
}

PartRole::Tell PartRole::OnAck(int64_t position) {
  if (acked_ < 0) {
    first_acked_ = position;
    first_lag_ = appended_ - position;
  }
  acked_ = position;
  if (state_ == State::kAlone &&
      (appended_ - acked_ <= kNearlyAll || MostAhead() <= kNearlyAll)) {
    state_ = State::kJoining;
    join_at_ = appended_;
  }
  if (state_ != State::kJoining || acked_ < join_at_) return std::nullopt;
  state_ = State::kCurrent;
  v1::PsPartState tell;
  tell.set_term(term_);
  tell.set_current(incarnation_);
  tell.set_number(lost_.number());
  return tell;
}

PartRole::Tell PartRole::OnBackupLost(const std::string& reason) {
  acked_ = -1;
  if (state_ == State::kJoining) state_ = State::kAlone;
  if (state_ != State::kCurrent) return std::nullopt;
  state_ = State::kAsking;
  lost_.set_number(lost_.number() + 1);
  lost_.set_reason(reason);
  return Question();
}

bool PartRole::OnSilence(absl::Duration silent) {
  if (silent < kCatchUpPatience || acked_ < 0) return false;
  if (state_ != State::kAlone && state_ != State::kJoining) return false;
  // As before its first answer.
  acked_ = -1;
  state_ = State::kAlone;
  return true;
}

PartRole::Tell PartRole::Question() const {
  if (state_ != State::kAsking) return std::nullopt;
  v1::PsPartState tell;
  tell.set_term(term_);
  *tell.mutable_lost() = lost_;
  return tell;
}

void PartRole::OnNewerTerm() {
  if (primary()) state_ = State::kFenced;
}

std::optional<absl::Status> PartRole::MayAcknowledge(int64_t term,
                                                     int64_t position) const {
  if (term != term_ || !primary()) {
    return absl::UnavailableError("another copy has taken over");
  }
  if (state_ == State::kAlone) {
    if (acked_ < 0) return absl::OkStatus();
    if (position - acked_ <= MostAhead()) return absl::OkStatus();
    return std::nullopt;
  }
  if (state_ != State::kAsking && acked_ >= position) return absl::OkStatus();
  return std::nullopt;
}

void PartRole::Describe(v1::PsCopy& copy) const {
  copy.set_term(term_);
  copy.set_primary(primary());
  copy.set_current(state_ == State::kCurrent ? incarnation_ : 0);
  if (state_ == State::kBackup && followed_) copy.set_current(1);
  copy.set_number(lost_.number());
  if (state_ == State::kAsking) *copy.mutable_lost() = lost_;
}

absl::Status PartRole::CheckFollow(int64_t term) const {
  if (term < term_) {
    return absl::FailedPreconditionError(
        absl::StrCat("term ", term, " is over, this is term ", term_));
  }
  if (term > term_ || state_ != State::kBackup) {
    return absl::UnavailableError(
        absl::StrCat("not the backup of term ", term, " yet"));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
