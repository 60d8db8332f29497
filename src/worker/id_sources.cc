#include "id_sources.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <utility>

#include "elasticdl/model/internal/unique_ids.h"

namespace elasticdl::worker {
namespace {

// A model whose ids are computed in its layers is not asked for ever.
constexpr int kMostFruitless = 5;
// Nor are the columns of a feature that has very many.
constexpr int64_t kMostColumns = 256;

bool HoldsIds(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.numel() > 0 &&
         (tensor.scalar_type() == torch::kLong ||
          tensor.scalar_type() == torch::kInt);
}

// Of ascending ids, those from `least` on.
torch::Tensor From(const torch::Tensor& ids, int64_t least) {
  const auto* begin = ids.data_ptr<int64_t>();
  const auto* end = begin + ids.numel();
  const int64_t dropped = std::lower_bound(begin, end, least) - begin;
  return dropped == 0 ? ids : ids.slice(0, dropped);
}

}  // namespace

torch::Tensor IdSources::Ids(const Features& features, const Source& source) {
  if (source.feature >= features.size()) return {};
  torch::Tensor tensor = features.items()[source.feature].second;
  if (!HoldsIds(tensor)) return {};
  if (source.column >= 0) {
    if (tensor.dim() != 2 || source.column >= tensor.size(1)) return {};
    tensor = tensor.select(1, source.column);
  }
  return From(internal::Unique(tensor.to(torch::kLong)).ids, source.least);
}

std::vector<TableIds> IdSources::Predict(const Features& features) const {
  std::map<size_t, std::vector<torch::Tensor>> by_table;
  // Tables often share a feature.
  std::vector<std::pair<Source, torch::Tensor>> known;
  for (const Source& source : sources_) {
    const auto same =
        std::find_if(known.begin(), known.end(), [&](const auto& entry) {
          return entry.first.feature == source.feature &&
                 entry.first.column == source.column &&
                 entry.first.least == source.least;
        });
    const torch::Tensor ids =
        same != known.end() ? same->second : Ids(features, source);
    if (same == known.end()) known.emplace_back(source, ids);
    if (ids.defined() && ids.numel() > 0) {
      by_table[source.table].push_back(ids);
    }
  }
  std::vector<TableIds> predicted;
  predicted.reserve(by_table.size());
  for (const auto& [table, parts] : by_table) {
    predicted.push_back({table, parts.size() == 1
                                    ? parts[0]
                                    : internal::Unique(torch::cat(parts)).ids});
  }
  return predicted;
}

bool IdSources::Knows(const Features& features, const TableIds& asked) const {
  return std::any_of(sources_.begin(), sources_.end(), [&](const Source& it) {
    if (it.table != asked.table) return false;
    const torch::Tensor ids = Ids(features, it);
    return ids.defined() && torch::equal(ids, asked.ids);
  });
}

bool IdSources::Find(const Features& features, const TableIds& asked) {
  for (size_t i = 0; i < features.size(); ++i) {
    const torch::Tensor& tensor = features.items()[i].second;
    if (!HoldsIds(tensor) || tensor.numel() < asked.ids.numel()) continue;
    const int64_t columns =
        tensor.dim() == 2 ? std::min(tensor.size(1), kMostColumns) : 0;
    for (int64_t column = -1; column < columns; ++column) {
      // Negative ids are padding, and 0 may be.
      for (const int64_t least : {0, 1}) {
        const Source source{asked.table, i, column, least};
        const torch::Tensor ids = Ids(features, source);
        if (!ids.defined() || !torch::equal(ids, asked.ids)) continue;
        sources_.push_back(source);
        return true;
      }
    }
  }
  return false;
}

void IdSources::Learn(const Features& features,
                      const std::vector<TableIds>& asked) {
  if (fruitless_ >= kMostFruitless) return;
  // What was right by chance before is right no more.
  std::vector<Source> kept;
  for (const Source& source : sources_) {
    const torch::Tensor ids = Ids(features, source);
    if (std::any_of(asked.begin(), asked.end(), [&](const TableIds& ask) {
          return ask.table == source.table && ids.defined() &&
                 torch::equal(ids, ask.ids);
        })) {
      kept.push_back(source);
    }
  }
  sources_ = std::move(kept);
  bool all = true;
  for (const TableIds& ask : asked) {
    if (!Knows(features, ask)) all &= Find(features, ask);
  }
  fruitless_ = all ? 0 : fruitless_ + 1;
}

}  // namespace elasticdl::worker
