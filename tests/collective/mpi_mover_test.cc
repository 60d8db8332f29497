// What a world over MPI does when MPI or a peer misbehaves. MPI is a double:
// one rank, whose requests end as the test says.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/collective/communicator.h"
#include "mpi/mover.h"

namespace elasticdl::collective {
namespace {

using ::testing::HasSubstr;

// Of the only universe of this process: the table has no place for it.
struct FakeMpi {
  struct Request {
    bool sends;
    char* data;
    size_t bytes;
    int peer;
    int tag;
  };
  // By handle.
  std::map<uint64_t, Request> requests;
  uint64_t last = 0;
  // What the next poll does with each request.
  enum class Mode { kNothing, kEnd, kShort, kFail } mode = Mode::kEnd;
  int poll_error = 0;
};
FakeMpi* fake = nullptr;

int Start(bool sends, void* data, size_t bytes, int peer, int tag,
          uint64_t* request) {
  *request = ++fake->last;
  fake->requests[*request] = {sends, static_cast<char*>(data), bytes, peer,
                              tag};
  return 0;
}
int FakeSend(const void* data, size_t bytes, int to, int tag,
             uint64_t* request) {
  return Start(true, const_cast<void*>(data), bytes, to, tag, request);
}
int FakeReceive(void* data, size_t bytes, int from, int tag,
                uint64_t* request) {
  return Start(false, data, bytes, from, tag, request);
}
// Requests end in reverse order: MPI promises none.
int FakePoll(uint64_t* requests, int count, ElasticdlMpiEnded* ended,
             int* num_ended) {
  *num_ended = 0;
  if (fake->poll_error != 0) return fake->poll_error;
  if (fake->mode == FakeMpi::Mode::kNothing) return 0;
  for (int i = count - 1; i >= 0; --i) {
    const FakeMpi::Request& request = fake->requests.at(requests[i]);
    if (!request.sends) std::memset(request.data, 'r', request.bytes);
    ElasticdlMpiEnded end = {i, 0, static_cast<int64_t>(request.bytes)};
    if (fake->mode == FakeMpi::Mode::kShort) --end.bytes;
    if (fake->mode == FakeMpi::Mode::kFail) end.error = 17;
    ended[(*num_ended)++] = end;
    fake->requests.erase(requests[i]);
  }
  return 0;
}
void FakeDescribe(int error, char* text, size_t bytes) {
  std::snprintf(text, bytes, "error number %d", error);
}

class MpiMoverTest : public testing::Test {
 protected:
  MpiMoverTest() : thread_(absl::Seconds(40)) {
    fake = &mpi_;
    MpiMover::Options options;
    options.table = &table_;
    options.thread = &thread_;
    options.mpi_ranks = {10, 11, 12};
    options.tag = 7;
    mover_ = std::make_unique<MpiMover>(options);
  }

  // Sends to rank 1 and receives from rank 2, on the MPI thread.
  absl::Status Move(size_t sends, size_t receives,
                    absl::Duration timeout = absl::Seconds(40)) {
    const std::vector<char> out(sends, 's');
    in_.clear();
    const Mesh::Incoming incoming = {
        2, receives, [&](const char* chunk, size_t offset, size_t bytes) {
          EXPECT_EQ(offset, in_.size());
          in_.append(chunk, bytes);
        }};
    Deadline deadline(timeout);
    deadline.nanos();
    absl::Status moved;
    const auto over = [&] { return over_; };
    Deadline all(absl::Seconds(40));
    EXPECT_TRUE(thread_
                    .Run(
                        [&] {
                          moved = mover_->Move({{1, out.data(), sends}},
                                               {incoming}, deadline, over);
                        },
                        all, [] { return false; })
                    .ok());
    return moved;
  }

  const ElasticdlMpiTable table_ = {ELASTICDL_MPI_VERSION, nullptr,  FakeSend,
                                    FakeReceive,           FakePoll, nullptr,
                                    FakeDescribe};
  FakeMpi mpi_;
  MpiThread thread_;
  std::unique_ptr<MpiMover> mover_;
  std::string in_;
  bool over_ = false;
};

TEST_F(MpiMoverTest, MovesMessagesOfAnySizeInOrder) {
  for (const size_t bytes :
       {0, 1, 4096, 4097, 256 << 10, (256 << 10) + 1, 5 << 20}) {
    ASSERT_TRUE(Move(bytes, bytes * 2).ok()) << bytes;
    EXPECT_EQ(in_, std::string(bytes * 2, 'r'));
    EXPECT_TRUE(mpi_.requests.empty());
  }
}

TEST_F(MpiMoverTest, UsesTheRanksOfTheUniverseAndTheTagOfTheWorld) {
  mpi_.mode = FakeMpi::Mode::kNothing;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Move(5, 6, absl::Milliseconds(1))));
  ASSERT_EQ(mpi_.requests.size(), 2u);
  for (const auto& [handle, request] : mpi_.requests) {
    EXPECT_EQ(request.peer, request.sends ? 11 : 12);
    EXPECT_EQ(request.tag, 7);
    EXPECT_EQ(request.bytes, request.sends ? 5u : 6u);
  }
}

TEST_F(MpiMoverTest, AShortMessageEndsTheWorld) {
  mpi_.mode = FakeMpi::Mode::kShort;
  const absl::Status status = Move(0, 100);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(BlamedRank(status), 2);
  EXPECT_THAT(std::string(status.message()), HasSubstr("99 bytes"));
}

TEST_F(MpiMoverTest, AnErrorOfARequestBlamesItsPeer) {
  mpi_.mode = FakeMpi::Mode::kFail;
  const absl::Status status = Move(100, 0);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(BlamedRank(status), 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("error number 17"));
}

TEST_F(MpiMoverTest, AnErrorOfMpiBlamesNobody) {
  mpi_.poll_error = 3;
  const absl::Status status = Move(100, 100);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(BlamedRank(status), -1);
}

TEST_F(MpiMoverTest, TheEndOfTheWorldEndsIt) {
  mpi_.mode = FakeMpi::Mode::kNothing;
  over_ = true;
  EXPECT_TRUE(absl::IsCancelled(Move(100, 100)));
}

// The address sanitizer tells if these were freed.
TEST_F(MpiMoverTest, BuffersOfPendingRequestsOutliveTheWorld) {
  mpi_.mode = FakeMpi::Mode::kNothing;
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(Move(1 << 20, 1 << 20, absl::Milliseconds(1))));
  mover_.reset();
  // Three chunks in each direction.
  EXPECT_EQ(mpi_.requests.size(), 6u);
  for (const auto& [handle, request] : mpi_.requests) {
    std::memset(request.data, 'x', request.bytes);
  }
}

}  // namespace
}  // namespace elasticdl::collective
