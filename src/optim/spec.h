// The table of optimizers and their arguments.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/optim.h"

namespace elasticdl::optim::internal {

// What values an argument may have.
enum class Range {
  kAny,          // finite
  kNonNegative,  // >= 0
  kFraction,     // 0 <= x < 1
  kBool,         // 0 or 1
  kNonPositive,  // <= 0
};

struct Argument {
  const char* name;
  double default_value;
  Range range;
};

struct Entry {
  const char* type;
  std::vector<Argument> arguments;
};

// All optimizers; the order is that of the documentation.
const std::vector<Entry>& Table();

// The arguments of a canonical spec with the defaults filled in.
std::map<std::string, double> WithDefaults(const OptimizerSpec& canonical);

}  // namespace elasticdl::optim::internal
