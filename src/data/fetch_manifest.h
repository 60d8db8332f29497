// manifest.json beside a fetched data set: says what is complete.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace elasticdl::data::internal {

struct FetchManifest {
  std::string set;
  std::string source;  // package and version
  int64_t train_records = 0;
  int64_t test_records = 0;
};

// The manifest of `directory` if all files that it names are there with their
// sizes; NOT_FOUND when there is no manifest, DATA_LOSS when it does not fit.
absl::StatusOr<FetchManifest> ReadCompleteManifest(
    const std::string& directory);

// Writes `directory`/manifest.json for the files that `staging` has in train
// and test, which the caller then moves to `directory`.
absl::Status WriteManifest(const std::string& directory,
                           const std::string& staging,
                           const FetchManifest& manifest);

// Hexadecimal SHA-256 of a file.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace elasticdl::data::internal
