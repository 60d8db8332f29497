// Which tensors of a minibatch feed which tables, so that rows can be pulled
// before the layers ask for them. Nobody says it: it is learnt from what the
// layers ask for.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elasticdl/model/types.h"

namespace elasticdl::worker {

// Rows of one table: int64, one dimension, ascending, none twice.
struct TableIds {
  size_t table = 0;
  torch::Tensor ids;
};

// A guess, never more: whoever uses it must compare. Thread-compatible.
class IdSources {
 public:
  // The ids that layers will ask for on this minibatch; one entry per table,
  // only those that are known and have any.
  std::vector<TableIds> Predict(const Features& features) const;

  // The layers have asked for `asked`, and Predict did not know it all. Finds
  // an integer tensor among the features, or a column of one, whose different
  // ids are these. After some fruitless tries it does nothing any more.
  void Learn(const Features& features, const std::vector<TableIds>& asked);

 private:
  struct Source {
    size_t table = 0;
    // Index in the features, and column of that; -1 = all of it.
    size_t feature = 0;
    int64_t column = -1;
    // Smaller ids are no ids: padding.
    int64_t least = 0;
  };
  static torch::Tensor Ids(const Features& features, const Source& source);
  bool Find(const Features& features, const TableIds& asked);
  bool Knows(const Features& features, const TableIds& asked) const;

  std::vector<Source> sources_;
  int fruitless_ = 0;
};

}  // namespace elasticdl::worker
