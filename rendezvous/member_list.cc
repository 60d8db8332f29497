#include "elasticdl/rendezvous/member_list.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::rendezvous {
namespace {

using Member = std::pair<int64_t, std::string>;

// Adds those from `first` on.
void AddMembers(const std::vector<Member>& members, size_t first,
                v1::MemberList& list) {
  std::unordered_map<std::string, uint32_t> places;
  for (size_t i = first; i < members.size(); ++i) {
    const auto& [id, host] = members[i];
    const auto [place, is_new] =
        places.emplace(host, static_cast<uint32_t>(places.size()));
    if (is_new) list.add_hosts(host);
    list.add_ids(id);
    list.add_host_of(place->second);
  }
}

std::shared_ptr<const v1::MasterMessage> Share(v1::MasterMessage message) {
  return std::make_shared<const v1::MasterMessage>(std::move(message));
}

absl::Status Nonsense(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the list of a world's members: ", what));
}

}  // namespace

MemberListWriter::Encoded MemberListWriter::Encode(v1::MasterMessage message) {
  v1::Prepare& prepare = *message.mutable_prepare();
  std::vector<Member> members;
  members.reserve(static_cast<size_t>(prepare.members_size()));
  for (v1::Member& member : *prepare.mutable_members()) {
    members.emplace_back(member.worker_id(), std::move(*member.mutable_host()));
  }
  prepare.clear_members();
  Encoded encoded;
  encoded.generation = prepare.generation();
  if (generation_ != 0) {
    // As many of the old members as come first and in the same order stay;
    // whoever does not fit comes after them, old or new.
    v1::MasterMessage change = message;
    v1::MemberList& list = *change.mutable_prepare()->mutable_list();
    list.set_base(generation_);
    size_t kept = 0;
    for (size_t old = 0; old < members_.size(); ++old) {
      if (kept < members.size() && members_[old] == members[kept]) {
        ++kept;
      } else {
        list.add_dropped(static_cast<uint32_t>(old));
      }
    }
    AddMembers(members, kept, list);
    encoded.change = Share(std::move(change));
    encoded.base = generation_;
  }
  AddMembers(members, 0, *prepare.mutable_list());
  encoded.whole = Share(std::move(message));
  generation_ = encoded.generation;
  members_ = std::move(members);
  newest_ = encoded.whole;
  return encoded;
}

std::shared_ptr<const v1::MasterMessage> MemberListWriter::Again(
    int64_t generation) const {
  return generation == generation_ ? newest_ : nullptr;
}

absl::Status MemberListReader::Decode(v1::Prepare& prepare) {
  if (!prepare.has_list()) return absl::OkStatus();
  const v1::MemberList list = std::move(*prepare.mutable_list());
  prepare.clear_list();
  if (list.base() != 0 && list.base() != generation_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the member list of world ", prepare.generation(), " builds on world ",
        list.base(), ", but the last one received is of world ", generation_));
  }
  std::vector<v1::Member> members;
  if (list.base() != 0) {
    members = std::move(members_);
    generation_ = 0;  // until the change has been made
    members_.clear();
    int64_t before = -1;
    for (const uint32_t rank : list.dropped()) {
      if (rank <= before || rank >= members.size()) {
        return Nonsense(absl::StrCat("rank ", rank, " of ", members.size(),
                                     " after ", before, " is dropped"));
      }
      before = rank;
    }
    size_t kept = 0;
    int next = 0;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (next < list.dropped_size() && list.dropped(next) == rank) {
        ++next;
      } else {
        if (kept != rank) members[kept] = std::move(members[rank]);
        ++kept;
      }
    }
    members.resize(kept);
  }
  if (list.ids_size() != list.host_of_size()) {
    return Nonsense(absl::StrCat(list.ids_size(), " ids and ",
                                 list.host_of_size(), " hosts"));
  }
  for (int i = 0; i < list.ids_size(); ++i) {
    const uint32_t place = list.host_of(i);
    if (place >= static_cast<uint32_t>(list.hosts_size())) {
      return Nonsense(absl::StrCat("host ", place, " of ", list.hosts_size()));
    }
    v1::Member& member = members.emplace_back();
    member.set_worker_id(list.ids(i));
    member.set_host(list.hosts(static_cast<int>(place)));
  }
  prepare.mutable_members()->Assign(members.begin(), members.end());
  members_ = std::move(members);
  generation_ = prepare.generation();
  return absl::OkStatus();
}

}  // namespace elasticdl::rendezvous
