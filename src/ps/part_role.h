// What a copy of a part of the model is, primary or backup, and what it may
// acknowledge (docs/design/0006-parameter-servers.md, "Backups"). Pure.
//
//   state      event                                 then
//   ---------  ------------------------------------  --------------------------
//   any        assigned as backup, newer term        kBackup
//   any        assigned as primary, newer term       kAlone
//   any        the same, handed over                 kAsking; the master hears
//   kAlone     the backup has nearly everything      kJoining: from here on
//                                                    entries wait for it
//   kJoining   the backup has all that did not wait  kCurrent; the master hears
//   kJoining   the backup is lost, or silent         kAlone
//   kCurrent   the backup is lost                    kAsking; the master hears
//   kAsking    the master says: alone                kAlone
//   a primary  the backup knows a newer term         kFenced
//
// An entry is acknowledged: in kAlone, when it is in the log; in kJoining and
// kCurrent, when the backup has it, too; in the other states never. In kAlone,
// while a backup catches up, an entry that is too far ahead of it waits:
// otherwise a backup that is only as fast as its primary would never catch up.
// If the backup is silent for kCatchUpPatience, no entry waits for it until it
// replies again. A copy is synchronized only in kAlone: a backup that the
// master may still promote is never overwritten.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Thread-compatible.
class PartRole {
 public:
  // PsAssignment.alone of a primary that takes over the part from one that is
  // still alive. It asks before it acknowledges anything, so that the other one
  // can continue if it is lost first.
  static constexpr int64_t kHandedOver = -1;

  enum class State {
    kNone,
    kBackup,
    kAlone,
    kJoining,
    kCurrent,
    kAsking,
    kFenced
  };
  // A backup answers every entry, and once a second without one.
  static constexpr absl::Duration kCatchUpPatience = absl::Seconds(3);
  // For the master; `part` is to be filled in.
  using Tell = std::optional<v1::PsPartState>;

  State state() const { return state_; }
  int64_t term() const { return term_; }
  bool primary() const {
    return state_ == State::kAlone || state_ == State::kJoining ||
           state_ == State::kCurrent || state_ == State::kAsking;
  }
  // Where a primary finds its backup; empty: nowhere now.
  const std::string& backup_address() const { return backup_address_; }
  // The backup may be overwritten by what this copy has.
  bool may_synchronize() const {
    return state_ == State::kAlone && !backup_address_.empty();
  }

  // True: it counts. False: it is older than what is known.
  bool Assign(const v1::PsAssignment& assignment);
  // What it asks the master, if it does.
  Tell Question() const;

  // ---- primary ----
  // So many entries are in its log.
  void OnAppended(int64_t position) { appended_ = position; }
  // A synchronization begins, of the backup of this incarnation: what was heard
  // of one before is void.
  void OnSynchronize(uint64_t incarnation) {
    acked_ = -1;
    incarnation_ = incarnation;
  }
  // The backup has so many.
  Tell OnAck(int64_t position);
  Tell OnBackupLost(const std::string& reason);
  // Nothing was heard of the backup for so long, though it was asked. True: it
  // was catching up, and nobody waits for it any more.
  bool OnSilence(absl::Duration silent);
  void OnNewerTerm();
  // May what was appended under `term` as entry number `position` - 1 be
  // acknowledged? Nothing: not yet.
  std::optional<absl::Status> MayAcknowledge(int64_t term,
                                             int64_t position) const;
  // For a hello. `current` of a backup: 1 if it has followed its primary.
  void Describe(v1::PsCopy& copy) const;

  // ---- backup ----
  // It has all that its primary of this term has sent.
  void OnFollowed() { followed_ = true; }
  // May the primary of this term change what is here? FAILED_PRECONDITION: a
  // newer one is known. UNAVAILABLE: the master has not said so yet.
  absl::Status CheckFollow(int64_t term) const;

 private:
  // How far entries may be ahead of a backup that catches up: one more for two
  // that it has got.
  int64_t MostAhead() const { return first_lag_ - (acked_ - first_acked_) / 2; }

  State state_ = State::kNone;
  int64_t term_ = 0;
  std::string backup_address_;
  int64_t appended_ = 0;
  // -1: unknown.
  int64_t acked_ = -1;
  // What was acked first, and how far that was behind.
  int64_t first_acked_ = 0;
  int64_t first_lag_ = 0;
  uint64_t incarnation_ = 0;
  bool followed_ = false;
  // kJoining: entries before it were acknowledged without the backup.
  int64_t join_at_ = 0;
  // Of the last question to the master.
  v1::PsBackupLost lost_;
};

}  // namespace elasticdl::ps
