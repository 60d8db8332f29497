#include "server_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace elasticdl::master {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::Optional;

v1::Telemetry Told(int64_t limit,
                   const std::vector<std::pair<int, int64_t>>& parts) {
  v1::Telemetry telemetry;
  telemetry.set_limit_bytes(limit);
  for (const auto& [part, bytes] : parts) {
    (*telemetry.mutable_part_bytes())[part] = bytes;
  }
  return telemetry;
}

TEST(ServerMemoryTest, TheReasonNamesTheNumbers) {
  ServerMemory memory;
  EXPECT_THAT(memory.WhyNot(1, 1), Eq(std::nullopt)) << "nothing is known";
  for (int server = 0; server < 4; ++server) {
    memory.OnTelemetry(server, Told(1000, {{server, 600}}));
  }
  EXPECT_THAT(memory.WhyNot(3, 0.9), Eq(std::nullopt));
  EXPECT_THAT(memory.WhyNot(2, 0.9),
              Optional(Eq("the model uses 2400 bytes on 4 parameter servers, "
                          "and each may use 1000 (--ps_memory_limit, of which "
                          "10 % are kept free): it needs at least 3, not 2")));
  EXPECT_THAT(memory.WhyNot(2, 1),
              Optional(HasSubstr("(--ps_memory_limit): it needs at least 3")));
}

// Of three servers, one has 342 of the 1,024 buckets.
TEST(ServerMemoryTest, TheFullestServerCounts) {
  ServerMemory memory;
  for (int server = 0; server < 4; ++server) {
    memory.OnTelemetry(server, Told(1000, {{server, 750}}));
  }
  EXPECT_THAT(memory.WhyNot(3, 1),
              Optional(HasSubstr("it needs at least 4, not 3")));
  for (int server = 0; server < 4; ++server) {
    memory.OnTelemetry(server, Told(1000, {{server, 748}}));
  }
  EXPECT_THAT(memory.WhyNot(3, 1), Eq(std::nullopt));
}

TEST(ServerMemoryTest, AServerWithoutAPartDoesNotKnowTheLimit) {
  ServerMemory memory;
  memory.SetCount(3);
  EXPECT_THAT(memory.WhyUnknown(1), Eq(std::nullopt)) << "nothing is known";
  memory.OnTelemetry(0, Told(1000, {{0, 800}}));
  memory.OnTelemetry(1, Told(1000, {{1, 800}}));
  EXPECT_THAT(memory.WhyUnknown(1), Optional(HasSubstr("parameter server 2")));
  memory.OnTelemetry(2, Told(0, {}));
  EXPECT_THAT(memory.WhyUnknown(1), Eq(std::nullopt));
  EXPECT_THAT(memory.WhyUnknown(3), Eq(std::nullopt));
  EXPECT_THAT(memory.WhyNot(1, 1), Optional(HasSubstr("at least 2, not 1")));
}

TEST(ServerMemoryTest, MoreServersAlwaysHelp) {
  ServerMemory memory;
  memory.OnTelemetry(0, Told(1000, {{0, 5000}}));
  EXPECT_THAT(memory.WhyNot(2, 0.9), Eq(std::nullopt));
}

TEST(ServerMemoryTest, WithoutALimitEverythingFits) {
  ServerMemory memory;
  memory.OnTelemetry(0, Told(0, {{0, 5000}}));
  memory.OnTelemetry(1, Told(0, {{1, 5000}}));
  EXPECT_THAT(memory.WhyNot(1, 0.9), Eq(std::nullopt));
}

// Copies of a part are one part, and those of a server that is gone none.
TEST(ServerMemoryTest, APartIsCountedOnce) {
  ServerMemory memory;
  memory.OnTelemetry(0, Told(1000, {{0, 400}, {2, 10}}));
  memory.OnTelemetry(1, Told(1000, {{1, 400}, {0, 400}}));
  memory.OnTelemetry(2, Told(1000, {{2, 100}, {1, 400}}));
  EXPECT_THAT(memory.WhyNot(1, 0.9), Eq(std::nullopt)) << "900 bytes";
  memory.OnTelemetry(2, Told(1000, {{2, 101}, {1, 400}}));
  EXPECT_THAT(memory.WhyNot(1, 0.9), Optional(HasSubstr("901 bytes on 3")));
  memory.SetCount(2);
  EXPECT_THAT(memory.WhyNot(1, 0.9), Eq(std::nullopt));
}

}  // namespace
}  // namespace elasticdl::master
