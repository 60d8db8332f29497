// What the contract tests of Communicator share: worlds of real processes for
// each backend, and the operations in a uniform form.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "contracts/rank_processes.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// Nothing comes near to it unless it hangs.
constexpr absl::Duration kLong = absl::Seconds(40);

// In a rank's body: leaves with a text when something is not as it must be.
#define RANK_EXPECT(condition, ...)                               \
  do {                                                            \
    if (!(condition)) {                                           \
      return absl::StrCat("line ", __LINE__, ": " #condition " ", \
                          ##__VA_ARGS__);                         \
    }                                                             \
  } while (false)
#define RANK_EXPECT_OK(expression)                                      \
  do {                                                                  \
    if (absl::Status status_ = (expression); !status_.ok()) {           \
      return absl::StrCat("line ", __LINE__, ": ", status_.ToString()); \
    }                                                                   \
  } while (false)

struct Backend {
  std::string name;
  // For BackendOptions.
  std::string option;
  // Members take turns on that many hosts (of made-up names).
  int hosts;
  // Of the test libcudart: when streams run. Empty: no device is used.
  std::string schedule = "";
  // Rank 0's device.
  int first_device = 0;
  // NcclOptions::abort_patience.
  absl::Duration abort_patience = absl::Seconds(30);
  // For WorldSpec.
  int full_mesh = kFullMeshMembers;
  // Of Open MPI: UCX instead of ob1.
  bool ucx = false;
};
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) {
  return out << backend.name;
}

// With real GPUs only NCCL: the others need none.
std::vector<Backend> AllBackends();

WorldSpec MakeSpec(const Backend& backend, int64_t generation, int rank,
                   int size);

absl::StatusOr<std::unique_ptr<Connector>> Begin(const Backend& backend,
                                                 const WorldSpec& spec);

// Begin, exchange of offers through the test, Connect. The test must call
// Exchange.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectThrough(
    const Backend& backend, const WorldSpec& spec, Channel& test);

// The operations by name, with data that tells whether they worked.
struct Operation {
  std::string name;
  std::string failpoint;
};
const std::vector<Operation>& AllOperations();
// Runs one with about `bytes` of data.
absl::Status RunOperation(const std::string& name, Communicator& world,
                          size_t bytes, absl::Duration timeout);

class CommunicatorTest : public testing::TestWithParam<Backend> {
 protected:
  // Skips a backend that was not built in, or that this machine has no GPUs
  // for.
  void SetUp() override;
  // The size of a world: `wanted`, or on real GPUs at most one for each, but
  // always two.
  int Members(int wanted) const;
  // Runs `body` in ranks that form a world of generation 1 first, and expects
  // that all end well.
  using Body = std::function<std::string(Communicator& world)>;
  void RunWorld(int size, const Body& body);
  static std::vector<int> Ranks(int count);
};

}  // namespace elasticdl::collective
