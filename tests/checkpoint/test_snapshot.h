// Snapshots with known contents.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint::test {

// A snapshot whose tensors follow from (version, floats). Owns its memory.
class TestSnapshot {
 public:
  explicit TestSnapshot(int64_t version, size_t floats = 1000) {
    std::mt19937_64 random(static_cast<uint64_t>(version));
    // Reserved, so that the views stay where they are.
    memory_.reserve(8);
    Add(snapshot_.variables, "fc1/weight", {static_cast<int64_t>(floats)},
        random);
    Add(snapshot_.variables, "fc1/bias", {7}, random);
    Add(snapshot_.variables, "fc2/weight", {3, 5, 2}, random);
    Add(snapshot_.variables, "scalar", {}, random);
    Add(snapshot_.variables, "empty", {0, 4}, random);
    Add(snapshot_.slots, SlotName("fc1/weight", "m"),
        {static_cast<int64_t>(floats)}, random);
    Add(snapshot_.slots, SlotName("fc1/bias", "m"), {7}, random);
    snapshot_.version = version;
    snapshot_.optimizer = "SGD(lr=0.1,momentum=0.9)";
    snapshot_.optimizer_step = version + 1;
    v1::Ledger ledger;
    ledger.set_step(version);
    ledger.set_committed_records(version * 64);
    snapshot_.ledger = ledger;
  }

  const Snapshot& get() const { return snapshot_; }
  Snapshot& get() { return snapshot_; }

 private:
  void Add(std::vector<NamedTensor>& to, std::string name,
           std::vector<int64_t> shape, std::mt19937_64& random) {
    size_t n = 4;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    std::string bytes(n, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    memory_.push_back(std::move(bytes));
    to.push_back({std::move(name), v1::DT_FLOAT, std::move(shape),
                  absl::MakeConstSpan(memory_.back())});
  }

  Snapshot snapshot_;
  std::vector<std::string> memory_;
};

inline void ExpectSameTensors(const std::vector<NamedTensor>& loaded,
                              const std::vector<NamedTensor>& saved) {
  ASSERT_EQ(loaded.size(), saved.size());
  for (const NamedTensor& tensor : saved) {
    const auto found = std::find_if(
        loaded.begin(), loaded.end(),
        [&](const NamedTensor& t) { return t.name == tensor.name; });
    ASSERT_NE(found, loaded.end()) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_TRUE(found->bytes == tensor.bytes) << tensor.name;
  }
}

inline void ExpectSame(const Loaded& loaded, const Snapshot& saved) {
  EXPECT_EQ(loaded.version, saved.version);
  EXPECT_EQ(loaded.optimizer, saved.optimizer);
  EXPECT_EQ(loaded.optimizer_step, saved.optimizer_step);
  ASSERT_EQ(loaded.ledger.has_value(), saved.ledger.has_value());
  if (saved.ledger.has_value()) {
    EXPECT_EQ(loaded.ledger->SerializeAsString(),
              saved.ledger->SerializeAsString());
  }
  ExpectSameTensors(loaded.variables, saved.variables);
  ExpectSameTensors(loaded.slots, saved.slots);
}

inline std::string MustSave(const std::string& dir, const Snapshot& snapshot,
                            int keep_max = 0) {
  SaveOptions options;
  options.keep_max = keep_max;
  const absl::StatusOr<std::string> path = Save(dir, snapshot, options);
  EXPECT_TRUE(path.ok()) << path.status();
  return path.ok() ? *path : std::string();
}

// Numbers of the complete versions.
inline std::vector<int64_t> Versions(const std::string& dir) {
  const absl::StatusOr<Listing> listing = ListVersions(dir);
  EXPECT_TRUE(listing.ok()) << listing.status();
  std::vector<int64_t> numbers;
  for (const Version& version : listing->versions) {
    numbers.push_back(version.version);
  }
  return numbers;
}

}  // namespace elasticdl::checkpoint::test
