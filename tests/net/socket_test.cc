// Sockets and the handshake over loopback.
#include "elasticdl/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/handshake.h"

namespace elasticdl::net {
namespace {

using ::testing::HasSubstr;

struct Pair {
  Socket dialler;
  Socket listener;
};

Pair Connected() {
  auto listener = Listener::Open({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok()) << listener.status();
  auto dialler =
      Socket::Connect({"127.0.0.1", listener->port()}, absl::Seconds(10));
  EXPECT_TRUE(dialler.ok()) << dialler.status();
  auto accepted = listener->Accept();
  EXPECT_TRUE(accepted.ok()) << accepted.status();
  return {*std::move(dialler), *std::move(accepted)};
}

TEST(AddressTest, Parses) {
  EXPECT_EQ(Address::Parse("host:80")->ToString(), "host:80");
  EXPECT_EQ(Address::Parse("[::1]:80")->host, "::1");
  EXPECT_EQ(Address::Parse("[::1]:80")->ToString(), "[::1]:80");
  EXPECT_EQ(Address::Parse(":80")->host, "");
  for (const char* bad :
       {"", "host", "host:", "host:99999", "host:-1", "::1:80"}) {
    EXPECT_FALSE(Address::Parse(bad).ok()) << bad;
  }
}

TEST(SocketTest, MovesManyBytes) {
  Pair pair = Connected();
  const std::string sent(64 << 20, 'x');
  Thread writer("writer", [&] {
    EXPECT_TRUE(pair.dialler.Write(sent, absl::Minutes(1)).ok());
  });
  std::string got(sent.size(), '\0');
  EXPECT_TRUE(
      pair.listener.Read(got.data(), got.size(), absl::Minutes(1)).ok());
  writer.Join();
  EXPECT_EQ(got, sent);
}

TEST(SocketTest, DeadlinesEnd) {
  Pair pair = Connected();
  char byte = 0;
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pair.listener.Read(&byte, 1, absl::Milliseconds(1))));
  // Nobody reads: the kernel's buffers fill up.
  const std::string much(64 << 20, 'x');
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pair.dialler.Write(much, absl::Milliseconds(10))));
}

// Bytes that keep coming do not win time.
TEST(SocketTest, ADeadlineForAllOfItIsNotRenewed) {
  Pair pair = Connected();
  ASSERT_TRUE(pair.dialler.Write("12345", absl::Minutes(1)).ok());
  char bytes[8];
  const absl::Time now = Clock::Real().Now();
  EXPECT_TRUE(pair.listener.ReadBy(bytes, 3, now + absl::Minutes(1)).ok());
  EXPECT_EQ(absl::string_view(bytes, 3), "123");
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pair.listener.ReadBy(bytes, 8, now + absl::Milliseconds(10))));
  EXPECT_TRUE(absl::IsDeadlineExceeded(pair.listener.ReadBy(bytes, 1, now)));
}

TEST(SocketTest, TheEndOfTheOtherIsUnavailable) {
  Pair pair = Connected();
  pair.dialler = Socket();
  char byte = 0;
  EXPECT_TRUE(
      absl::IsUnavailable(pair.listener.Read(&byte, 1, absl::Seconds(10))));
}

TEST(SocketTest, ShutDownEndsAWait) {
  Pair pair = Connected();
  Thread waiter("waiter", [&] {
    char byte = 0;
    EXPECT_TRUE(pair.listener.WaitReadable().ok());
    EXPECT_FALSE(pair.listener.Read(&byte, 1, absl::Seconds(10)).ok());
  });
  pair.listener.ShutDown();
  waiter.Join();
}

TEST(SocketTest, ShutDownEndsAccept) {
  auto listener = Listener::Open({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  Thread waiter("waiter", [&] {
    EXPECT_TRUE(absl::IsCancelled(listener->Accept().status()));
  });
  listener->ShutDown();
  waiter.Join();
}

TEST(SocketTest, NobodyThereIsUnavailable) {
  uint16_t port = 0;
  {
    auto listener = Listener::Open({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    port = listener->port();
  }
  EXPECT_TRUE(absl::IsUnavailable(
      Socket::Connect({"127.0.0.1", port}, absl::Seconds(10)).status()));
}

// What the two ends say of each other.
std::pair<absl::Status, absl::Status> Greet(const std::string& dialler_secret,
                                            const std::string& listener_secret,
                                            int32_t whom, int32_t self) {
  Pair pair = Connected();
  absl::Status listener;
  Thread other("listener", [&] {
    listener = GreetAsListener(pair.listener, listener_secret, self,
                               absl::Seconds(10));
    pair.listener.ShutDown();
  });
  const absl::Status dialler =
      GreetAsDialler(pair.dialler, dialler_secret, whom, absl::Seconds(10));
  other.Join();
  return {dialler, listener};
}

TEST(HandshakeTest, BothKnowTheSecret) {
  const auto [dialler, listener] = Greet("secret", "secret", 3, 3);
  EXPECT_TRUE(dialler.ok()) << dialler;
  EXPECT_TRUE(listener.ok()) << listener;
}

TEST(HandshakeTest, AStrangerIsRefused) {
  const auto [dialler, listener] = Greet("guess", "secret", 3, 3);
  EXPECT_FALSE(dialler.ok());
  EXPECT_TRUE(absl::IsPermissionDenied(listener)) << listener;
}

TEST(HandshakeTest, AnotherNumberIsToldApart) {
  const auto [dialler, listener] = Greet("secret", "secret", 3, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(dialler)) << dialler;
  EXPECT_THAT(std::string(listener.message()), HasSubstr("wants number 3"));
}

TEST(HandshakeTest, GarbageIsRefused) {
  Pair pair = Connected();
  Thread other("stranger", [&] {
    EXPECT_TRUE(
        pair.dialler.Write(std::string(1000, 'A'), absl::Seconds(10)).ok());
  });
  EXPECT_TRUE(absl::IsPermissionDenied(
      GreetAsListener(pair.listener, "secret", 0, absl::Seconds(10))));
  other.Join();
}

}  // namespace
}  // namespace elasticdl::net
