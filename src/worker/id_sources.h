// Which tensors of a minibatch contain the ids of which tables, so that rows
// can be prefetched. Models do not declare it: it is learnt from the ids that
// the layers request.
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

// A prediction that may be wrong: the caller must compare it with the actual
// ids. Thread-compatible.
class IdSources {
 public:
  // The ids that layers will ask for on this minibatch; one entry per table,
  // only those that are known and have any.
  std::vector<TableIds> Predict(const Features& features) const;

  // The layers have requested `asked`, and Predict did not return all of it.
  // Looks for an integer tensor among the features, or a column of one, with
  // the same distinct ids. Stops trying after some failures.
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
