#include <gtest/gtest.h>

#include "tcp/handshake.h"

namespace elasticdl::collective {
namespace {

WorldSpec World(int rank) {
  WorldSpec world;
  world.generation = 5;
  world.rank = rank;
  world.hosts = {"a", "b", "c"};
  world.secret = "secret";
  return world;
}

TEST(TcpHandshakeTest, MembersRecogniseEachOther) {
  const std::string hello = TcpHandshake::Hello(World(2), 0);
  ASSERT_EQ(hello.size(), TcpHandshake::kHelloBytes);
  EXPECT_EQ(TcpHandshake::ReadHello(World(0), hello).value(), 2);
  const std::string reply = TcpHandshake::Reply(World(0), hello);
  ASSERT_EQ(reply.size(), TcpHandshake::kReplyBytes);
  EXPECT_TRUE(TcpHandshake::CheckReply(World(2), hello, reply));
  const std::string confirm = TcpHandshake::Confirm(World(2), hello, reply);
  EXPECT_EQ(confirm.size(), TcpHandshake::kConfirmBytes);
  EXPECT_EQ(confirm, TcpHandshake::Confirm(World(0), hello, reply));
}

TEST(TcpHandshakeTest, RefusesOthers) {
  WorldSpec stranger = World(2);
  stranger.secret = "guess";
  EXPECT_TRUE(absl::IsPermissionDenied(
      TcpHandshake::ReadHello(World(0), TcpHandshake::Hello(stranger, 0))
          .status()));
  WorldSpec stale = World(2);
  stale.generation = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(
      TcpHandshake::ReadHello(World(0), TcpHandshake::Hello(stale, 0))
          .status()));
  // For another listener, or by a rank that must not dial.
  EXPECT_FALSE(
      TcpHandshake::ReadHello(World(0), TcpHandshake::Hello(World(2), 1)).ok());
  EXPECT_FALSE(
      TcpHandshake::ReadHello(World(1), TcpHandshake::Hello(World(0), 1)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      TcpHandshake::ReadHello(World(0),
                              std::string(TcpHandshake::kHelloBytes, 'x'))
          .status()));
}

TEST(TcpHandshakeTest, ARecordedConversationIsOfNoUse) {
  const std::string hello = TcpHandshake::Hello(World(2), 0);
  const std::string reply = TcpHandshake::Reply(World(0), hello);
  const std::string confirm = TcpHandshake::Confirm(World(2), hello, reply);
  const std::string again = TcpHandshake::Reply(World(0), hello);
  EXPECT_NE(TcpHandshake::Confirm(World(0), hello, again), confirm);
  const std::string other_hello = TcpHandshake::Hello(World(2), 0);
  EXPECT_FALSE(TcpHandshake::CheckReply(World(2), other_hello, reply));
}

}  // namespace
}  // namespace elasticdl::collective
