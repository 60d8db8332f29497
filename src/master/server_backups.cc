#include "server_backups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/limits.h"

namespace elasticdl::master {
namespace {

// PartRole::kHandedOver.
constexpr int64_t kHandedOver = -1;

}  // namespace

ServerBackups::ServerBackups(Options options)
    : options_(std::move(options)),
      servers_(options_.servers),
      parts_(static_cast<size_t>(servers_)) {
  for (int i = 0; i < servers_; ++i) {
    parts_[static_cast<size_t>(i)].host = GoalOf(i);
  }
}

void ServerBackups::Replay(const v1::PsPartRecord& record) {
  if (record.part() < 0 || record.part() >= kMaxParameterServers) return;
  const auto number = static_cast<size_t>(record.part());
  if (number >= parts_.size()) parts_.resize(number + 1);
  Part& part = parts_[number];
  part.host = record.host();
  part.term = record.term();
  part.primary = record.primary() == 0 ? 0 : 1;
  part.current = record.current();
}

void ServerBackups::Resume(absl::Time now) {
  resume_until_ = now + options_.resume_grace;
  for (Part& part : parts_) {
    for (Copy& copy : part.copies) copy.awaited = part.term > 0;
  }
}

std::vector<v1::PsPartRecord> ServerBackups::Records() const {
  std::vector<v1::PsPartRecord> records;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].term > 0) records.push_back(RecordOf(static_cast<int>(i)));
  }
  return records;
}

v1::PsPartRecord ServerBackups::RecordOf(int number) const {
  const Part& part = parts_[static_cast<size_t>(number)];
  v1::PsPartRecord record;
  record.set_part(number);
  record.set_term(part.term);
  record.set_primary(part.primary);
  record.set_current(part.current);
  record.set_host(part.host);
  return record;
}

int ServerBackups::needed() const {
  int needed = servers_;
  for (int i = 0; i < servers_; ++i) {
    needed = std::max(needed, ServerOf(i, 1) + 1);
  }
  return needed;
}

std::vector<int> ServerBackups::PartsOn(int server) const {
  std::vector<int> parts;
  for (int i = 0; i < servers_; ++i) {
    if (CopyOn(server, i).has_value()) parts.push_back(i);
  }
  return parts;
}

int ServerBackups::PrimaryOf(int part) const {
  return ServerOf(part, parts_[static_cast<size_t>(part)].primary);
}

bool ServerBackups::HasBackup(int number) const {
  const Part& part = parts_[static_cast<size_t>(number)];
  return IsCurrent(part, 1 - part.primary);
}

bool ServerBackups::AllCurrent() const {
  for (int i = 0; i < servers_; ++i) {
    if (!HasBackup(i)) return false;
  }
  return true;
}

std::optional<int> ServerBackups::CopyOn(int server, int part) const {
  if (part < 0 || part >= servers_) return std::nullopt;
  if (server == ServerOf(part, 0)) return 0;
  if (server == ServerOf(part, 1)) return 1;
  return std::nullopt;
}

bool ServerBackups::InRole(const Part& part, int copy) {
  return part.copies[copy].attached && part.term > 0 &&
         part.copies[copy].term == part.term;
}

bool ServerBackups::IsCurrent(const Part& part, int copy) {
  if (!part.current || !InRole(part, copy)) return false;
  // A primary that is not there any more has said it to another master: then
  // the backup, which is in its role since, is meant.
  return part.backup == 0
             ? !part.copies[copy].restarted
             : part.backup == part.copies[copy].hello.incarnation();
}

bool ServerBackups::HasAll(int number, int copy) const {
  const Part& part = parts_[static_cast<size_t>(number)];
  return part.copies[copy].attached &&
         options_.fits(number, part.copies[copy].hello.version());
}

// ---- events ----

ServerBackups::Decisions ServerBackups::OnHello(absl::Time now,
                                                const v1::ServerHello& hello) {
  Decisions out;
  // With a copy at least: before that it reads its log.
  if (hello.copies_size() > 0) attached_.insert(hello.server());
  for (const v1::PsCopy& copy : hello.copies()) {
    const auto index = CopyOn(hello.server(), copy.part());
    if (index.has_value()) Attach(copy.part(), *index, copy, out);
  }
  PlaceAll(out);
  return out;
}

void ServerBackups::Attach(int number, int index, const v1::PsCopy& hello,
                           Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  Copy& copy = part.copies[index];
  copy.attached = true;
  copy.awaited = false;
  // Another one, which counts its questions anew.
  if (copy.hello.incarnation() != hello.incarnation()) copy.answered = 0;
  copy.hello = hello;
  copy.term = hello.term();
  // One that has not followed the primary of this term cannot be the backup
  // that a master before this one has recorded as current.
  copy.restarted = hello.term() == 0 || hello.term() != part.term ||
                   (!hello.primary() && hello.current() == 0);
  if (index == part.primary) part.told.reset();
  // The journal may have lost its end; a copy has its term from a master.
  if (hello.term() > part.term) {
    part.term = hello.term();
    part.primary = hello.primary() ? index : 1 - index;
    part.current = false;
    out.records.push_back(RecordOf(number));
  }
  const bool leads = index == part.primary && InRole(part, index);
  if (leads && hello.primary()) {
    // It knows best: it may not have been heard, or not have heard.
    if (part.current != (hello.current() != 0)) {
      part.current = !part.current;
      out.records.push_back(RecordOf(number));
    }
    part.backup = hello.current();
    part.serves = true;
    out.serving.push_back({number, hello.address(), hello.version()});
    // A master before this one, or this one before, has answered.
    copy.answered = std::max(copy.answered, hello.number());
    if (hello.has_lost()) Assign(number, index, hello.lost().number(), out);
    return Decide(number, out);
  }
  // It was fenced before it heard of its own end, or calls itself what it is
  // not: it begins anew.
  if (InRole(part, index) && hello.primary() != (index == part.primary)) {
    copy.term = 0;
    copy.restarted = true;
  }
  Decide(number, out);
}

ServerBackups::Decisions ServerBackups::OnLost(absl::Time now, int server) {
  Decisions out;
  attached_.erase(server);
  for (int i = 0; i < servers_; ++i) {
    const auto index = CopyOn(server, i);
    Part& part = parts_[static_cast<size_t>(i)];
    if (!index.has_value() || !part.copies[*index].attached) continue;
    part.copies[*index] = Copy();
    if (*index == part.primary) {
      part.serves = false;
      out.away.push_back(i);
    }
    Decide(i, out);
  }
  return out;
}

ServerBackups::Decisions ServerBackups::SetServers(int servers) {
  Decisions out;
  for (int i = servers; i < servers_; ++i) Remove(i, out);
  const int before = std::exchange(servers_, servers);
  parts_.resize(std::max(parts_.size(), static_cast<size_t>(servers)));
  for (int i = before; i < servers; ++i) {
    parts_[static_cast<size_t>(i)].host = GoalOf(i);
    out.hosting.insert({i, GoalOf(i)});
  }
  PlaceAll(out);
  return out;
}

void ServerBackups::Remove(int number, Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  out.hosting.insert({number, part.host});
  const int64_t term = part.term;
  part = Part();
  part.term = term;
  if (term > 0) out.records.push_back(RecordOf(number));
  out.away.push_back(number);
}

ServerBackups::Decisions ServerBackups::OnState(absl::Time now, int server,
                                                const v1::PsPartState& state) {
  Decisions out;
  const auto index = CopyOn(server, state.part());
  if (!index.has_value()) return out;
  Part& part = parts_[static_cast<size_t>(state.part())];
  // What an old primary says is void; it hears of its end otherwise.
  if (*index != part.primary || state.term() != part.term) return out;
  const int number = state.part();
  Copy& copy = part.copies[*index];
  switch (state.state_case()) {
    case v1::PsPartState::kServing:
      part.serves = true;
      out.serving.push_back({number, copy.hello.address(), state.serving()});
      break;
    case v1::PsPartState::kCurrent:
      // It has lost that backup since, and knows that this is recorded.
      if (state.number() < copy.answered) break;
      part.current = true;
      part.backup = state.current();
      out.records.push_back(RecordOf(number));
      out.changes.push_back(
          {PartChange::Kind::kCurrent, number, server, part.term,
           ServerOf(number, 1 - part.primary), AllCurrent(),
           absl::StrCat("the backup of part ", number, " on server ",
                        ServerOf(number, 1 - part.primary),
                        " has everything")});
      break;
    case v1::PsPartState::kLost:
      if (state.lost().number() <= copy.answered) break;
      Degrade(number, state.lost().reason(), out);
      Assign(number, *index, state.lost().number(), out);
      break;
    case v1::PsPartState::STATE_NOT_SET:
      break;
  }
  Place(number, out);
  return out;
}

ServerBackups::Decisions ServerBackups::OnTimer(absl::Time now) {
  Decisions out;
  if (now < resume_until_) return out;
  resume_until_ = absl::InfiniteFuture();
  for (int i = 0; i < servers_; ++i) {
    for (Copy& copy : parts_[static_cast<size_t>(i)].copies) {
      copy.awaited = false;
    }
    Decide(i, out);
  }
  return out;
}

// ---- decisions ----

void ServerBackups::PlaceAll(Decisions& out) {
  for (int i = 0; i < servers_; ++i) Place(i, out);
}

void ServerBackups::Place(int number, Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  const int goal = GoalOf(number);
  if (part.host == goal) {
    if (std::exchange(part.releases, false)) Decide(number, out);
    return;
  }
  if (attached_.count(goal) == 0) return;
  if (part.primary == 1) {
    // Nothing is lost: it has all that was acknowledged, and if it is not there
    // any more, the primary of now goes on.
    if (!InRole(part, 1) || !IsCurrent(part, 0)) return;
    out.away.push_back(number);
    return Promote(number, 0, out, /*handed_over=*/true);
  }
  if (!InRole(part, 0) || !part.serves || part.handed_over) return;
  if (part.current) {
    // It may be lost, and nobody has noticed: then the backup is needed.
    if (!std::exchange(part.releases, true)) Assign(number, 0, 0, out);
    return;
  }
  out.hosting.insert({part.host, goal});
  part.host = goal;
  part.copies[1] = Copy();
  part.releases = false;
  out.records.push_back(RecordOf(number));
  Assign(number, 0, 0, out);
}

void ServerBackups::Decide(int number, Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  const int primary = part.primary;
  const int backup = 1 - primary;
  const Copy& first = part.copies[primary];
  const Copy& second = part.copies[backup];
  if (InRole(part, primary)) {
    // Whoever came back is to be told what it is, and the primary where. One
    // whose host is gone says nothing: the primary may not have noticed.
    if (second.attached && !InRole(part, backup)) {
      Assign(number, backup, 0, out);
    }
    if (!second.awaited && part.told != BackupAddress(part)) {
      Assign(number, primary, 0, out);
    }
    return;
  }
  // A silent primary may be alive.
  if (first.awaited) return;
  if (IsCurrent(part, backup)) return Promote(number, backup, out);
  if (part.handed_over && InRole(part, backup)) {
    return Promote(number, backup, out);
  }
  if (HasAll(number, primary)) return Promote(number, primary, out);
  if (part.current && HasAll(number, backup)) {
    return Promote(number, backup, out);
  }
  if (!first.attached || (part.current && !second.attached)) return;
  out.failure = absl::StrCat(
      "parameter server ", ServerOf(number, primary),
      " came back with version ", first.hello.version(), " of part ", number,
      " of the model, which is not all that it had acknowledged: its log, or "
      "the end of it, is lost, and ",
      part.current ? "so is that of its backup" : "there is no current backup",
      ". Start again from the newest checkpoint (--checkpoint_dir_for_init)");
}

void ServerBackups::Promote(int number, int index, Decisions& out,
                            bool handed_over) {
  Part& part = parts_[static_cast<size_t>(number)];
  const bool other = index != part.primary;
  ++part.term;
  part.primary = index;
  part.current = false;
  part.backup = 0;
  part.serves = false;
  part.releases = false;
  part.handed_over = handed_over;
  out.records.push_back(RecordOf(number));
  // The primary's way to it goes first: it must be the backup by then.
  if (part.copies[1 - index].attached) Assign(number, 1 - index, 0, out);
  Assign(number, index, 0, out);
  if (!other) return;
  out.changes.push_back(
      {PartChange::Kind::kTakeover, number, ServerOf(number, index), part.term,
       /*backup=*/-1, /*all_current=*/false,
       absl::StrCat("server ", ServerOf(number, index), " takes part ", number,
                    " of the model over from server ",
                    ServerOf(number, 1 - index),
                    "; the part has no backup for now")});
}

void ServerBackups::Assign(int number, int index, int64_t alone,
                           Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  part.copies[index].term = part.term;
  Decisions::Send& send = out.sends.emplace_back();
  send.server = ServerOf(number, index);
  send.assignment.set_part(number);
  send.assignment.set_term(part.term);
  send.assignment.set_primary(index == part.primary);
  if (index != part.primary) return;
  // Empty when it is away.
  part.told = BackupAddress(part);
  send.assignment.set_backup_address(*part.told);
  if (alone > 0) {
    part.copies[index].answered = alone;
    part.handed_over = false;
  }
  send.assignment.set_alone(part.handed_over ? kHandedOver : alone);
}

void ServerBackups::Degrade(int number, const std::string& why,
                            Decisions& out) {
  Part& part = parts_[static_cast<size_t>(number)];
  part.current = false;
  part.backup = 0;
  out.records.push_back(RecordOf(number));
  out.changes.push_back(
      {PartChange::Kind::kBackupLost, number, PrimaryOf(number), part.term,
       /*backup=*/-1, /*all_current=*/false,
       absl::StrCat("part ", number, " of the model on server ",
                    PrimaryOf(number), " has no backup now: ", why)});
}

}  // namespace elasticdl::master
