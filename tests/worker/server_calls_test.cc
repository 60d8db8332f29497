#include "server_calls.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace elasticdl::worker {
namespace {

TEST(ServerCallsTest, RunsCallsInOrderOnAThreadOfItsOwn) {
  ServerCalls calls;
  std::vector<int> order;
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id there = here;
  const auto first = calls.Begin([&] {
    there = std::this_thread::get_id();
    order.push_back(1);
    return absl::OkStatus();
  });
  const auto second = calls.Begin([&] {
    order.push_back(2);
    return absl::AbortedError("second");
  });
  EXPECT_EQ(calls.Wait(second).message(), "second");
  EXPECT_TRUE(calls.Wait(first).ok());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_NE(there, here);
}

TEST(ServerCallsTest, RunsHereWhenNothingIsUnderWay) {
  ServerCalls calls;
  std::thread::id there;
  const auto call = [&] {
    there = std::this_thread::get_id();
    return absl::OkStatus();
  };
  EXPECT_TRUE(calls.Run(call).ok());
  EXPECT_EQ(there, std::this_thread::get_id());
  int before = 0;
  calls.Begin([&] {
    before = 1;
    return absl::OkStatus();
  });
  EXPECT_TRUE(calls
                  .Run([&] {
                    return before == 1 ? absl::OkStatus()
                                       : absl::InternalError("too early");
                  })
                  .ok());
}

TEST(ServerCallsTest, EndsWithWhatWasBegun) {
  int done = 0;
  {
    ServerCalls calls;
    for (int i = 0; i < 100; ++i) {
      calls.Begin([&] {
        ++done;
        return absl::OkStatus();
      });
    }
  }
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace elasticdl::worker
