// Worlds of a backend that stands in for MPI or NCCL.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::collective {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

// Two members of this process.
std::vector<std::unique_ptr<Communicator>> Connect(const std::string& backend) {
  std::vector<std::unique_ptr<Connector>> connectors;
  std::vector<std::string> offers;
  for (int rank = 0; rank < 2; ++rank) {
    WorldSpec world;
    world.generation = 1;
    world.rank = rank;
    world.hosts = {LocalHost(), LocalHost()};
    world.secret = "secret";
    BackendOptions options;
    options.backend = backend;
    auto connector = BeginConnect(world, options);
    EXPECT_TRUE(connector.ok()) << connector.status();
    if (!connector.ok()) return {};
    offers.push_back((*connector)->offer());
    connectors.push_back(*std::move(connector));
  }
  std::vector<std::unique_ptr<Communicator>> members(2);
  const auto connect = [&](size_t rank) {
    auto made = connectors[rank]->Connect(offers, kSoon);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) members[rank] = *std::move(made);
  };
  Thread other("other", [&] { connect(1); });
  connect(0);
  other.Join();
  return members;
}

TEST(StandInTest, SharedMemoryOfItsOwnChoiceMayShrink) {
  for (const auto& member : Connect("auto")) {
    ASSERT_NE(member, nullptr);
    EXPECT_TRUE(member->can_shrink());
  }
}

// Whoever dies may be the one that stood in the way of the other backend.
TEST(StandInTest, SharedMemoryInPlaceOfAnotherBackendDoesNotShrink) {
  for (const std::string backend : {"mpi", "nccl"}) {
    for (const auto& member : Connect(backend)) {
      ASSERT_NE(member, nullptr) << backend;
      EXPECT_FALSE(member->can_shrink()) << backend;
    }
  }
}

// Sets the limit of this process for files, until the end.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

// The kernel would kill whoever makes a file that is too large.
TEST(StandInTest, TheLimitForFilesIsKept) {
  {
    const FileLimit limit(6 << 20);
    for (const auto& member : Connect("auto")) {
      ASSERT_NE(member, nullptr);
      EXPECT_FALSE(member->can_shrink()) << "three areas take 12 MB";
    }
  }
  const FileLimit limit(1 << 20);
  WorldSpec world;
  world.hosts = {LocalHost(), LocalHost()};
  const absl::Status refused = BeginConnect(world, BackendOptions{}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_NE(refused.message().find("ulimit -f"), std::string::npos) << refused;
}

}  // namespace
}  // namespace elasticdl::collective
