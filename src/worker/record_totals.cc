#include "record_totals.h"

namespace elasticdl::worker {
namespace {

void Add(int64_t worker_id, int64_t records, RecordTotals::Proto& totals) {
  v1::RecordTotal& total = *totals.Add();
  total.set_worker_id(worker_id);
  total.set_records(records);
}

}  // namespace

void RecordTotals::EnterWorld(const Proto& totals,
                              const rendezvous::World& world) {
  std::map<int64_t, int64_t> all;
  for (const v1::RecordTotal& total : totals) {
    all[total.worker_id()] = total.records();
  }
  members_ = world.members;
  totals_.assign(world.members.size(), 0);
  unsettled_.assign(world.members.size(), 0);
  others_.clear();
  for (size_t rank = 0; rank < world.members.size(); ++rank) {
    const auto found = all.find(world.members[rank]);
    if (found != all.end()) totals_[rank] = found->second;
  }
  // All others are settled: the master does not ask about them again.
  for (const int64_t worker_id : world.unsettled) {
    const auto found = all.find(worker_id);
    if (found != all.end()) others_[worker_id] = found->second;
  }
}

void RecordTotals::LeaveWorld() {
  for (size_t rank = 0; rank < totals_.size(); ++rank) {
    others_[members_[rank]] = totals_[rank];
  }
  members_.clear();
  totals_.clear();
  unsettled_.clear();
}

void RecordTotals::AddRound(const std::vector<int64_t>& records, bool settled) {
  for (size_t rank = 0; rank < totals_.size(); ++rank) {
    totals_[rank] += records[rank];
    unsettled_[rank] = settled ? 0 : records[rank];
  }
}

int64_t RecordTotals::Of(int64_t worker_id) const {
  const auto found = others_.find(worker_id);
  return found == others_.end() ? 0 : found->second;
}

RecordTotals::Proto RecordTotals::All() const {
  Proto all;
  for (const auto& [worker_id, records] : others_) Add(worker_id, records, all);
  return all;
}

void RecordTotals::List(const std::vector<int64_t>& records,
                        std::vector<std::pair<int64_t, int64_t>>& list) const {
  list.assign(others_.begin(), others_.end());
  for (size_t rank = 0; rank < totals_.size(); ++rank) {
    list.emplace_back(members_[rank],
                      totals_[rank] + (records.empty() ? 0 : records[rank]));
  }
}

RecordTotals::Proto RecordTotals::Settled() const {
  Proto settled;
  for (size_t rank = 0; rank < totals_.size(); ++rank) {
    Add(members_[rank], totals_[rank] - unsettled_[rank], settled);
  }
  return settled;
}

}  // namespace elasticdl::worker
