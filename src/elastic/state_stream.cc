#include "elasticdl/elastic/state_stream.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/check.h"

namespace elasticdl::elastic {

StateStream::StateStream(size_t units, Parts parts)
    : units_(units), parts_(std::move(parts)) {
  ELASTICDL_CHECK(units > 0);
  const auto end = [&](const Part& part) {
    return (part.begin + part.have) % units_;
  };
  size_t most = 0;
  for (std::optional<Part>& part : parts_) {
    if (!part.has_value()) continue;
    ++num_behind_;
    // Nobody who is behind has everything: the end of it comes last.
    if (part->begin >= units_ || part->have >= units_) *part = Part();
    if (part->have <= most) continue;
    most = part->have;
    cursor_ = end(*part);
  }
  for (std::optional<Part>& part : parts_) {
    if (part.has_value() && (part->have == 0 || end(*part) != cursor_)) {
      *part = Part{cursor_, 0};
    }
  }
}

bool StateStream::IsBehind(int rank) const {
  return parts_[static_cast<size_t>(rank)].has_value();
}

int StateStream::NumBehindBefore(int rank) const {
  return static_cast<int>(
      std::count_if(parts_.begin(), parts_.begin() + rank,
                    [](const auto& part) { return part.has_value(); }));
}

const StateStream::Part& StateStream::part(int rank) const {
  return *parts_[static_cast<size_t>(rank)];
}

StateStream::Range StateStream::Next(size_t most) const {
  ELASTICDL_CHECK(active());
  size_t size = std::min(std::max<size_t>(most, 1), units_ - cursor_);
  for (const std::optional<Part>& part : parts_) {
    if (part.has_value()) size = std::min(size, units_ - part->have);
  }
  return {cursor_, cursor_ + size};
}

std::vector<int> StateStream::Passed(const Range& piece) {
  ELASTICDL_CHECK(piece.begin == cursor_ && piece.end <= units_);
  cursor_ = piece.end % units_;
  std::vector<int> level;
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    std::optional<Part>& part = parts_[rank];
    if (!part.has_value()) continue;
    part->have += piece.size();
    if (part->have < units_) continue;
    part.reset();
    --num_behind_;
    level.push_back(static_cast<int>(rank));
  }
  return level;
}

std::vector<StateStream::Range> RangesOf(const StateStream::Part& part,
                                         size_t units) {
  std::vector<StateStream::Range> ranges;
  if (part.have == 0) return ranges;
  const size_t end = part.begin + part.have;
  ranges.push_back({part.begin, std::min(end, units)});
  if (end > units) ranges.push_back({0, end - units});
  return ranges;
}

}  // namespace elasticdl::elastic
