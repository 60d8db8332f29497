// Which parameter servers are there, and where.
#include "server_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::ServerHello Hello(int server, const std::string& address) {
  v1::ServerHello hello;
  hello.set_server(server);
  hello.set_address(address);
  return hello;
}

TEST(ServerDirectoryTest, KnowsWhoIsWhere) {
  ServerDirectory directory(2);
  EXPECT_THAT(directory.addresses().addresses(), ElementsAre("", ""));
  const auto attached = directory.OnHello(7, Hello(1, ""));
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_TRUE(attached->attached);
  EXPECT_FALSE(attached->addresses);
  EXPECT_FALSE(attached->replaced.has_value());
  EXPECT_THAT(directory.addresses().addresses(), ElementsAre("", ""));

  const auto reachable = directory.OnHello(7, Hello(1, "h:1"));
  ASSERT_TRUE(reachable.ok()) << reachable.status();
  EXPECT_FALSE(reachable->attached);
  EXPECT_TRUE(reachable->addresses);
  EXPECT_FALSE(reachable->replaced.has_value());
  EXPECT_FALSE(directory.OnHello(7, Hello(1, "h:1"))->addresses);
  ASSERT_TRUE(directory.OnHello(5, Hello(0, "h:0")).ok());

  EXPECT_THAT(directory.addresses().addresses(), ElementsAre("h:0", "h:1"));
  EXPECT_THAT(directory.connections(), ElementsAre(5, 7));
  EXPECT_EQ(directory.ServerOf(7), 1);
  EXPECT_EQ(directory.ConnectionOf(1), 7);
  EXPECT_EQ(directory.ServerOf(6), std::nullopt);
  EXPECT_EQ(directory.ConnectionOf(2), std::nullopt);
  EXPECT_FALSE(directory.IsServer(6));
}

TEST(ServerDirectoryTest, ForgetsWhoIsGone) {
  ServerDirectory directory(1);
  ASSERT_TRUE(directory.OnHello(1, Hello(0, "h:0")).ok());
  EXPECT_FALSE(directory.OnClosed(2));
  EXPECT_TRUE(directory.OnClosed(1));
  EXPECT_THAT(directory.addresses().addresses(), ElementsAre(""));
  EXPECT_THAT(directory.connections(), IsEmpty());
  EXPECT_FALSE(directory.IsServer(1));
  // One that never could be reached is missed by nobody.
  ASSERT_TRUE(directory.OnHello(3, Hello(0, "")).ok());
  EXPECT_FALSE(directory.OnClosed(3));
}

TEST(ServerDirectoryTest, NewestStreamCounts) {
  ServerDirectory directory(1);
  ASSERT_TRUE(directory.OnHello(1, Hello(0, "h:0")).ok());
  const auto again = directory.OnHello(2, Hello(0, ""));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->attached);
  EXPECT_TRUE(again->addresses);
  EXPECT_EQ(again->replaced, 1);
  EXPECT_THAT(directory.addresses().addresses(), ElementsAre(""));
  EXPECT_EQ(directory.ConnectionOf(0), 2);
  // The old stream is still known for what it is, but counts for nothing.
  EXPECT_TRUE(directory.IsServer(1));
  EXPECT_EQ(directory.ServerOf(1), std::nullopt);
  ASSERT_TRUE(directory.OnHello(2, Hello(0, "h:9")).ok());
  EXPECT_FALSE(directory.OnClosed(1));
  EXPECT_FALSE(directory.IsServer(1));
  EXPECT_THAT(directory.addresses().addresses(), ElementsAre("h:9"));
}

TEST(ServerDirectoryTest, RefusesWhoIsNotOfThisJob) {
  ServerDirectory directory(2);
  for (const int server : {-1, 2}) {
    EXPECT_EQ(directory.OnHello(1, Hello(server, "h:1")).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(directory.IsServer(1));
    EXPECT_EQ(directory.ServerOf(1), std::nullopt);
  }
  EXPECT_FALSE(directory.OnClosed(1));
  // Nor may it change its number.
  ASSERT_TRUE(directory.OnHello(3, Hello(0, "h:0")).ok());
  EXPECT_EQ(directory.OnHello(3, Hello(1, "h:0")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(directory.ServerOf(3), 0);
}

}  // namespace
}  // namespace elasticdl::master
