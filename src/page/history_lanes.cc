// The lanes of a History: who is there, in which row, and what they do.
#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "elasticdl/page/history.h"
#include "history_event.h"

namespace elasticdl::page {

void History::ApplyPod(const Event& event) {
  const int64_t id = event.Whole("id", -1);
  if (id < 0) return;
  // Lines of ended pods do not say their type, their names do.
  const bool server = event.Text("type") == "ps" ||
                      absl::StartsWith(event.Text("pod"), "elasticdl-ps-");
  const Key key = {server, id};
  if (event.name == "pod_ended") {
    // The pod knows best why it ended, if somebody else said it before.
    if (members_.count(key) == 0) return CorrectEnd(key, event);
    return Leave(key, event.time, event.IsLoss(), event.Text("reason"));
  }
  LaneState state = LaneState::kStarting;
  if (event.name == "pod_started") {
    if (server) state = LaneState::kServing;
    if (!server && summary_.command == "command") state = LaneState::kWorking;
  }
  Enter(key, event.time, state, event.Text("reason"),
        event.Whole("replaces", -1));
}

// What a worker does from when it is ready.
LaneState History::ReadyState() const {
  if (summary_.command == "evaluate" || summary_.command == "predict") {
    return LaneState::kWorking;
  }
  // Workers of parameter servers train without a world.
  const bool alone = std::any_of(rows_.begin(), rows_.end(),
                                 [](const Row& row) { return row.server; });
  return alone ? LaneState::kTraining : LaneState::kJoining;
}

void History::ApplyWorker(const Event& event) {
  const int64_t id = event.Whole("worker_id", -1);
  if (id < 0) return;
  const Key key = {/*server=*/false, id};
  if (event.name == "worker_lost") {
    return Leave(key, event.time, event.IsLoss(), event.Text("reason"));
  }
  Enter(key, event.time, ReadyState(), "");
}

// The line has all who do it now.
void History::ApplyActivity(const Event& event) {
  std::set<int64_t> active;
  const auto workers = event.json.find("workers");
  if (workers != event.json.end() && workers->is_array()) {
    for (const auto& worker : *workers) {
      if (worker.is_number_integer()) active.insert(worker.get<int64_t>());
    }
  }
  for (auto& [key, member] : members_) {
    if (key.first) continue;
    (event.name == "saving" ? member.saving : member.evaluating) =
        active.count(key.second) > 0;
    Show(key, event.time, "");
  }
}

void History::ApplySilence(const Event& event) {
  const auto known =
      members_.find({event.Text("type") == "ps", event.Whole("id", -1)});
  if (known == members_.end()) return;
  known->second.silent = event.name == "silent";
  Show(known->first, event.time,
       event.name == "silent" ? event.Text("reason") : "");
}

void History::Enter(Key key, double time, LaneState state,
                    const std::string& reason, int64_t replaces) {
  const auto known = members_.find(key);
  // It has come further before this line was written.
  if (known != members_.end() && state <= known->second.base) return;
  if (state == LaneState::kTraining || state == LaneState::kWorking) {
    ++totals_.joined;
  }
  if (known != members_.end()) {
    known->second.base = state;
    return Show(key, time, reason);
  }
  Member member;
  member.row = TakeRow(key, time, replaces);
  member.base = state;
  member.span = OpenSpan(SpanOf(key, member, time, reason));
  members_[key] = member;
}

Span History::SpanOf(Key key, const Member& member, double time,
                     const std::string& reason) {
  Span span;
  span.row = member.row;
  span.server = key.first;
  span.member = key.second;
  span.state = member.Shown();
  span.base = member.base;
  span.begin = time;
  span.reason = reason;
  return span;
}

void History::Show(Key key, double time, const std::string& reason) {
  Member& member = members_[key];
  Span& open = spans_[member.span];
  open.base = std::max(open.base, member.base);
  if (open.state == member.Shown()) return;
  open.end = time;
  open.changed = cursor_;
  member.span = OpenSpan(SpanOf(key, member, time, reason));
}

void History::Leave(Key key, double time, bool lost,
                    const std::string& reason) {
  const auto known = members_.find(key);
  if (known == members_.end()) return;
  Span& span = spans_[known->second.span];
  span.end = time;
  span.ended = lost ? LaneEnd::kLost : LaneEnd::kLeft;
  span.lost += lost ? 1 : 0;
  span.reason = reason;
  span.changed = cursor_;
  ++(lost ? totals_.lost : totals_.left);
  rows_[static_cast<size_t>(known->second.row)].occupant.reset();
  members_.erase(known);
}

// Its stream ended before it was known why.
void History::CorrectEnd(Key key, const Event& event) {
  const bool lost = event.Is("failure");
  // Who left in order was lost only if its process failed.
  if (!lost && !event.Is("asked")) return;
  const auto last =
      std::find_if(spans_.rbegin(), spans_.rend(), [&](const Span& span) {
        return span.server == key.first && span.member == key.second;
      });
  if (last == spans_.rend()) return;
  if (last->ended != (lost ? LaneEnd::kLeft : LaneEnd::kLost)) return;
  const int64_t more = lost ? 1 : -1;
  last->ended = lost ? LaneEnd::kLost : LaneEnd::kLeft;
  last->lost += more;
  last->changed = cursor_;
  totals_.lost += more;
  totals_.left -= more;
}

int64_t History::TakeRow(Key key, double time, int64_t replaces) {
  const auto take = [&](size_t i) {
    rows_[i].occupant = rows_[i].last = key.second;
    return static_cast<int64_t>(i);
  };
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].server != key.first || replaces < 0) continue;
    if (rows_[i].last != replaces) continue;
    if (rows_[i].occupant.has_value()) {
      Leave({key.first, replaces}, time, /*lost=*/true, "replaced");
    }
    return take(i);
  }
  // A server that was started again keeps its number, and with it its row; so
  // does a worker that comes back.
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.server == key.first && row.last == key.second) return take(i);
  }
  for (size_t i = 0; i < rows_.size() && !key.first; ++i) {
    if (!rows_[i].server && !rows_[i].occupant.has_value()) return take(i);
  }
  rows_.push_back({key.first, key.second, key.second});
  return static_cast<int64_t>(rows_.size()) - 1;
}

size_t History::OpenSpan(const Span& span) {
  spans_.push_back(span);
  spans_.back().id = next_id_++;
  spans_.back().changed = cursor_;
  return spans_.size() - 1;
}

}  // namespace elasticdl::page
