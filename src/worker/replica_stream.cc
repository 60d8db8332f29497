// The state of a replica as a ring of units that can be passed on one by one
// while it changes (docs/design/0010-join-without-a-pause.md). A unit is one
// trained number with its optimizer's state, or four bytes of a parameter that
// is not trained. Buffers are not in the ring: they are passed on at its end.
#include <algorithm>

#include "replica.h"

namespace elasticdl::worker {
namespace {

constexpr size_t kUnitBytes = sizeof(float);

size_t UnitsOf(const torch::Tensor& tensor) {
  return (tensor.nbytes() + kUnitBytes - 1) / kUnitBytes;
}

}  // namespace

std::vector<torch::Tensor> Replica::Untrained() const {
  std::vector<torch::Tensor> untrained;
  for (const auto& [name, parameter] : network_->parameters()) {
    if (!parameter.requires_grad()) untrained.push_back(parameter);
  }
  return untrained;
}

size_t Replica::NumUnits() const {
  size_t units = flat_->size();
  for (const torch::Tensor& tensor : Untrained()) units += UnitsOf(tensor);
  return units;
}

std::vector<absl::Span<char>> Replica::Units(
    const elastic::StateStream::Range& range) {
  std::vector<absl::Span<char>> spans;
  // Of an array that lies at `place` in the ring.
  const auto add = [&](void* data, size_t bytes, size_t place, size_t units) {
    const size_t begin = std::max(range.begin, place);
    const size_t end = std::min(range.end, place + units);
    if (begin >= end) return;
    const size_t first = (begin - place) * kUnitBytes;
    const size_t last = std::min((end - place) * kUnitBytes, bytes);
    spans.emplace_back(static_cast<char*>(data) + first, last - first);
  };
  size_t place = flat_->size();
  add(flat_->values(), place * sizeof(float), 0, place);
  for (float* slot : slot_pointers_) {
    add(slot, place * sizeof(float), 0, place);
  }
  for (const torch::Tensor& tensor : Untrained()) {
    add(tensor.data_ptr(), tensor.nbytes(), place, UnitsOf(tensor));
    place += UnitsOf(tensor);
  }
  return spans;
}

std::vector<absl::Span<char>> Replica::BufferBytes() {
  std::vector<absl::Span<char>> spans;
  for (const auto& [name, buffer] : network_->buffers()) {
    spans.emplace_back(static_cast<char*>(buffer.data_ptr()), buffer.nbytes());
  }
  return spans;
}

void Replica::SetPart(std::optional<elastic::StateStream::Part> part) {
  if (part.has_value()) GiveUpLive("this member has only a part of the model");
  part_ = part;
}

void Replica::ApplyToPart(double learning_rate) {
  const size_t size = flat_->size();
  for (const auto& range : elastic::RangesOf(*part_, NumUnits())) {
    const size_t begin = std::min(range.begin, size);
    const size_t end = std::min(range.end, size);
    if (begin < end) ApplyTo(begin, end, learning_rate);
  }
}

}  // namespace elasticdl::worker
