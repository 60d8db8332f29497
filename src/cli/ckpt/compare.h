// What differs between two checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::cli {

struct Difference {
  // "variable", "slot", "table", or something else that differs ("step").
  std::string kind;
  // Empty for kinds that exist only once.
  std::string name;
  // If only one checkpoint has it: which, 1 or 2.
  int only_in = 0;
  // Types and shapes, or texts, if these differ.
  std::string first;
  std::string second;
  // Of a table.
  int64_t rows_only_in_first = 0;
  int64_t rows_only_in_second = 0;
  // The largest |a - b|; infinite when only one is a number.
  double max_difference = 0;
};

// Empty: they are equal. Values are compared as numbers, so 0 equals -0, but
// NaN equals NaN.
std::vector<Difference> Compare(const checkpoint::Loaded& a,
                                const checkpoint::Loaded& b);

// Largest |a - b| of two tensors of the same type and shape.
double MaxDifference(const checkpoint::NamedTensor& a,
                     const checkpoint::NamedTensor& b);

// Records in ranges of a ledger.
int64_t CountRecords(
    const google::protobuf::RepeatedPtrField<v1::LedgerRange>& ranges);

}  // namespace elasticdl::cli
