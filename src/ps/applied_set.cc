#include "applied_set.h"

#include <algorithm>
#include <iterator>

namespace elasticdl::ps {

AppliedSet::Answer AppliedSet::Test(const v1::PsPush& push) const {
  if (push.epoch() < oldest_epoch_) return Answer::kForgotten;
  const auto epoch = epochs_.find(push.epoch());
  if (epoch == epochs_.end()) return Answer::kNew;
  const auto shard = epoch->second.find(push.shard());
  if (shard == epoch->second.end()) return Answer::kNew;
  const Intervals& intervals = shard->second;
  // The last interval that begins before the push ends.
  auto last = intervals.lower_bound(push.end());
  if (last == intervals.begin()) return Answer::kNew;
  --last;
  if (last->second <= push.begin()) return Answer::kNew;
  return last->first <= push.begin() && push.end() <= last->second
             ? Answer::kThere
             : Answer::kTorn;
}

void AppliedSet::Add(const v1::PsPush& push) {
  Insert(push.begin(), push.end(), epochs_[push.epoch()][push.shard()]);
}

void AppliedSet::Remove(const v1::PsPush& push) {
  const auto epoch = epochs_.find(push.epoch());
  if (epoch == epochs_.end()) return;
  const auto shard = epoch->second.find(push.shard());
  if (shard != epoch->second.end()) {
    Remove(push.begin(), push.end(), shard->second);
  }
}

void AppliedSet::Insert(int64_t begin, int64_t end, Intervals& intervals) {
  // From the first interval that ends at `begin` or later.
  auto at = intervals.lower_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second >= begin) --at;
  while (at != intervals.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = intervals.erase(at);
  }
  intervals[begin] = end;
}

void AppliedSet::Remove(int64_t begin, int64_t end, Intervals& intervals) {
  auto at = intervals.lower_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second > begin) --at;
  while (at != intervals.end() && at->first < end) {
    const auto [first, last] = *at;
    at = intervals.erase(at);
    if (first < begin) intervals[first] = begin;
    if (last > end) intervals[end] = last;
  }
}

void AppliedSet::ForgetBefore(int32_t epoch) {
  if (epoch <= oldest_epoch_) return;
  oldest_epoch_ = epoch;
  epochs_.erase(epochs_.begin(), epochs_.lower_bound(epoch));
}

void AppliedSet::AddAll(const AppliedSet& other) {
  for (const auto& [epoch, shards] : other.epochs_) {
    for (const auto& [name, intervals] : shards) {
      for (const auto& [begin, end] : intervals) {
        Insert(begin, end, epochs_[epoch][name]);
      }
    }
  }
  ForgetBefore(other.oldest_epoch_);
}

void AppliedSet::RemoveAll(const AppliedSet& other) {
  for (const auto& [epoch, shards] : other.epochs_) {
    for (const auto& [name, intervals] : shards) {
      for (const auto& [begin, end] : intervals) {
        Remove(begin, end, epochs_[epoch][name]);
      }
    }
  }
}

size_t AppliedSet::size() const {
  size_t sum = 0;
  for (const auto& [epoch, shards] : epochs_) {
    for (const auto& [name, intervals] : shards) sum += intervals.size();
  }
  return sum;
}

v1::PsApplied AppliedSet::ToProto() const {
  v1::PsApplied proto;
  proto.set_oldest_epoch(oldest_epoch_);
  for (const auto& [epoch, shards] : epochs_) {
    for (const auto& [name, intervals] : shards) {
      if (intervals.empty()) continue;
      v1::PsRanges& ranges = *proto.add_ranges();
      ranges.set_epoch(epoch);
      ranges.set_shard(name);
      for (const auto& [begin, end] : intervals) {
        ranges.add_bounds(begin);
        ranges.add_bounds(end);
      }
    }
  }
  return proto;
}

AppliedSet AppliedSet::FromProto(const v1::PsApplied& proto) {
  AppliedSet set;
  for (const v1::PsRanges& ranges : proto.ranges()) {
    for (int i = 0; i + 1 < ranges.bounds_size(); i += 2) {
      if (ranges.bounds(i) >= ranges.bounds(i + 1)) continue;
      Insert(ranges.bounds(i), ranges.bounds(i + 1),
             set.epochs_[ranges.epoch()][ranges.shard()]);
    }
  }
  set.ForgetBefore(proto.oldest_epoch());
  return set;
}

}  // namespace elasticdl::ps
