// How a History stays small, and what its curves say then.
#include <algorithm>
#include <cstddef>

#include "elasticdl/page/history.h"

namespace elasticdl::page {
namespace {

// The first resolution: shorter lives than this cannot be seen in a view of
// some hours.
constexpr double kFirstResolution = 1;
// A hundred years.
constexpr double kLastResolution = 3e9;
// Lines of the log come once a second at first. Between points that are further
// apart than this, the mean says more than the rate that the line has measured.
constexpr double kMeasured = 1.5;

// It evaluates or saves: of a long job this is forgotten first.
bool IsActivity(const Span& span) {
  return span.state == LaneState::kEvaluating ||
         span.state == LaneState::kSaving;
}

// `b` goes on with what `a` shows.
bool Continues(const Span& a, const Span& b) {
  return a.state == b.state && a.member == b.member && a.end == b.begin &&
         a.ended == LaneEnd::kNone && a.members == 1 && b.members == 1;
}

bool IsShort(const Span& span, double resolution) {
  return span.end.has_value() && *span.end - span.begin < resolution;
}

// `b` follows `a` in the same row. Whoever was there for a long time keeps a
// span of its own, without the time that it took to start.
bool MayMerge(const Span& a, const Span& b, double resolution) {
  // Else the end of `a` could not be seen any more. When `b` has been merged
  // with the rest of its life, it may be.
  if (a.ended != LaneEnd::kNone && b.ended == LaneEnd::kNone) return false;
  if (!IsShort(a, resolution) || b.begin - *a.end >= resolution) return false;
  const bool same = a.member == b.member && a.ended == LaneEnd::kNone;
  return IsShort(b, resolution) || (same && a.members == 1);
}

double Coarser(double resolution) {
  return resolution == 0 ? kFirstResolution : 2 * resolution;
}

void MergeInto(Span& a, const Span& b) {
  const bool same = a.member == b.member && a.ended == LaneEnd::kNone;
  a.members += b.members - (same ? 1 : 0);
  a.lost += b.lost;
  // What comes on top of the base is shown while it lasts.
  a.base = std::max(a.base, b.base);
  a.state = b.end.has_value() || b.state == b.base ? a.base : b.state;
  a.member = b.member;
  a.end = b.end;
  a.ended = b.ended;
  a.reason = b.reason;
}

size_t Heap(const std::string& text) {
  return text.capacity() > 15 ? text.capacity() + 1 : 0;
}

}  // namespace

size_t History::MostSpans() const {
  return std::max(kMaxSpans, 4 * rows_.size());
}

void History::Thin() {
  if (points_.size() > kMaxPoints) ThinPoints();
  if (evaluations_.size() > kMaxEvaluations) ThinEvaluations();
  if (spans_.size() > MostSpans()) ThinSpans();
  if (worlds_.size() > kMaxWorlds) {
    MergeWorlds();
    while (worlds_.size() > kMaxWorlds / 2 &&
           world_resolution_ < kLastResolution) {
      world_resolution_ = Coarser(world_resolution_);
      MergeWorlds();
    }
    thinned_at_ = cursor_;
  }
}

void History::ThinSpans() {
  thinned_at_ = cursor_;
  // A quarter of the room must be free afterwards, or it would be done again
  // and again.
  while (spans_.size() > MostSpans() / 4 * 3 && ForgetActivities()) {
  }
  if (spans_.size() <= MostSpans() / 4 * 3) return;
  // What is new is brought to the present resolution first.
  MergeSpans();
  while (spans_.size() > MostSpans() / 2 && resolution_ < kLastResolution) {
    resolution_ = Coarser(resolution_);
    MergeSpans();
  }
}

// The older half of them. False: there are none.
bool History::ForgetActivities() {
  std::vector<double> begins;
  for (const Span& span : spans_) {
    if (IsActivity(span) && span.end.has_value()) begins.push_back(span.begin);
  }
  if (begins.empty()) return false;
  const auto middle =
      begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
  std::nth_element(begins.begin(), middle, begins.end());
  for (Span& span : spans_) {
    if (IsActivity(span) && span.end.has_value() && span.begin <= *middle) {
      span.state = span.base;
    }
  }
  JoinSpans();
  return true;
}

// In each row, spans that follow each other and show the same become one.
void History::JoinSpans() {
  std::vector<std::optional<size_t>> last(rows_.size());
  size_t kept = 0;
  for (Span& span : spans_) {
    std::optional<size_t>& before = last[static_cast<size_t>(span.row)];
    if (before.has_value() && Continues(spans_[*before], span)) {
      Span& longer = spans_[*before];
      longer.end = span.end;
      longer.ended = span.ended;
      longer.lost += span.lost;
      if (!span.reason.empty()) longer.reason = span.reason;
      continue;
    }
    before = kept;
    if (&spans_[kept] != &span) spans_[kept] = std::move(span);
    ++kept;
  }
  spans_.resize(kept);
  PointToLast(last);
}

// The open span of a member is the last one of its row.
void History::PointToLast(const std::vector<std::optional<size_t>>& last) {
  for (auto& [key, member] : members_) {
    member.span = last[static_cast<size_t>(member.row)].value();
  }
}

// The parts of a life first; then lives, which have become one span each.
void History::MergeSpans() {
  for (size_t before = spans_.size() + 1; spans_.size() < before;) {
    before = spans_.size();
    MergeSpansOnce();
  }
}

// In each row a span is merged into the one before it.
void History::MergeSpansOnce() {
  std::vector<std::optional<size_t>> last(rows_.size());
  size_t kept = 0;
  for (Span& span : spans_) {
    std::optional<size_t>& before = last[static_cast<size_t>(span.row)];
    if (before.has_value() && MayMerge(spans_[*before], span, resolution_)) {
      MergeInto(spans_[*before], span);
      continue;
    }
    before = kept;
    if (&spans_[kept] != &span) spans_[kept] = std::move(span);
    ++kept;
  }
  spans_.resize(kept);
  PointToLast(last);
}

void History::MergeWorlds() {
  size_t kept = 0;
  for (WorldMark& world : worlds_) {
    if (kept > 0 && world.time - worlds_[kept - 1].time < world_resolution_) {
      WorldMark& before = worlds_[kept - 1];
      before.generation = world.generation;
      before.size = world.size;
      before.total_pause_ms += world.total_pause_ms;
      before.worlds += world.worlds;
      if (world.pause_ms > before.pause_ms) {
        before.pause_ms = world.pause_ms;
        before.cause = world.cause;
      }
      continue;
    }
    if (&worlds_[kept] != &world) worlds_[kept] = std::move(world);
    ++kept;
  }
  worlds_.resize(kept);
}

// The lines of a long job are minutes apart; what it did in the last seconds
// before one (a save, the middle of a long step) says little of those minutes.
double History::RateSincePoint(double time) const {
  if (points_.empty()) return summary_.records_per_s;
  const double seconds = time - points_.back().time;
  const int64_t records = summary_.records_done - points_.back().records_done;
  // A job that was rolled back has fewer.
  if (seconds <= kMeasured || records <= 0) return summary_.records_per_s;
  return static_cast<double>(records) / seconds;
}

// Of each pair the later point stays, with the mean rate of both.
void History::ThinPoints() {
  for (size_t i = 1; 2 * i < points_.size(); ++i) {
    const double begin = points_[2 * i - 2].time;
    const Point& first = points_[2 * i - 1];
    Point second = points_[2 * i];
    if (second.time > begin) {
      second.records_per_s =
          (first.records_per_s * (first.time - begin) +
           second.records_per_s * (second.time - first.time)) /
          (second.time - begin);
    }
    points_[i] = second;
  }
  points_.resize((points_.size() + 1) / 2);
  spacing_ *= 2;
  thinned_at_ = cursor_;
}

// The newest one stays.
void History::ThinEvaluations() {
  const size_t first = (evaluations_.size() + 1) % 2;
  size_t kept = 0;
  for (size_t i = first; i < evaluations_.size(); i += 2) {
    if (kept != i) evaluations_[kept] = std::move(evaluations_[i]);
    ++kept;
  }
  evaluations_.resize(kept);
  thinned_at_ = cursor_;
}

size_t History::bytes() const {
  size_t bytes = sizeof(*this) + rows_.capacity() * sizeof(Row) +
                 members_.size() * (sizeof(Key) + sizeof(Member) + 48) +
                 spans_.capacity() * sizeof(Span) +
                 worlds_.capacity() * sizeof(WorldMark) +
                 points_.capacity() * sizeof(Point) +
                 checkpoints_.size() * sizeof(CheckpointMark) +
                 evaluations_.capacity() * sizeof(EvaluationMark) +
                 marks_.size() * sizeof(JobMark) +
                 events_.size() * sizeof(EventLine) + Heap(model_);
  for (const Span& span : spans_) bytes += Heap(span.reason);
  for (const WorldMark& world : worlds_) bytes += Heap(world.cause);
  for (const CheckpointMark& mark : checkpoints_) {
    bytes += Heap(mark.path) + Heap(mark.error);
  }
  for (const EvaluationMark& mark : evaluations_) {
    for (const auto& [name, value] : mark.metrics) {
      bytes += Heap(name) + sizeof(std::string) + sizeof(value) + 40;
    }
  }
  for (const JobMark& mark : marks_) bytes += Heap(mark.kind) + Heap(mark.text);
  for (const EventLine& event : events_) bytes += Heap(event.json);
  for (const std::string& flag : summary_.flags) {
    bytes += sizeof(std::string) + Heap(flag);
  }
  return bytes;
}

}  // namespace elasticdl::page
