// The different ids of a minibatch, for layers that fetch each row once.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace elasticdl::internal {

struct UniqueIds {
  // Ascending, one dimension.
  torch::Tensor ids;
  // Where each of the given ids is in `ids`; the shape is theirs.
  torch::Tensor positions;
};

// Of int64 ids on the CPU. A hash table of its own, because torch::_unique
// allocates a node for every id and takes two to five times as long.
inline UniqueIds Unique(const torch::Tensor& ids) {
  const torch::Tensor given = ids.contiguous();
  const auto count = static_cast<size_t>(given.numel());
  const int64_t* const in = given.data_ptr<int64_t>();
  torch::Tensor positions = torch::empty(given.sizes(), torch::kLong);
  auto* const out = positions.data_ptr<int64_t>();

  // Open addressing; a slot holds a number in `found`.
  int bits = 4;
  while ((size_t{1} << bits) < 2 * count) ++bits;
  std::vector<int64_t> slots(size_t{1} << bits, -1);
  // The ids in the order in which they came, with their numbers.
  std::vector<std::pair<int64_t, int64_t>> found;
  for (size_t i = 0; i < count; ++i) {
    size_t slot =
        (static_cast<uint64_t>(in[i]) * 0x9e3779b97f4a7c15) >> (64 - bits);
    while (slots[slot] >= 0 &&
           found[static_cast<size_t>(slots[slot])].first != in[i]) {
      slot = (slot + 1) & (slots.size() - 1);
    }
    if (slots[slot] < 0) {
      slots[slot] = static_cast<int64_t>(found.size());
      found.emplace_back(in[i], slots[slot]);
    }
    out[i] = slots[slot];
  }

  std::sort(found.begin(), found.end());
  torch::Tensor unique =
      torch::empty({static_cast<int64_t>(found.size())}, torch::kLong);
  std::vector<int64_t> rank(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    unique.data_ptr<int64_t>()[i] = found[i].first;
    rank[static_cast<size_t>(found[i].second)] = static_cast<int64_t>(i);
  }
  for (size_t i = 0; i < count; ++i) {
    out[i] = rank[static_cast<size_t>(out[i])];
  }
  return {std::move(unique), std::move(positions)};
}

}  // namespace elasticdl::internal
