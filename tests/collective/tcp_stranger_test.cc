// Who connects to a member's port without belonging to the world.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "core/offer.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/thread.h"
#include "tcp/address.h"
#include "tcp/handshake.h"

namespace elasticdl::collective {
namespace {

constexpr int kSize = 3;
constexpr absl::Duration kLong = absl::Seconds(40);

WorldSpec World(int rank) {
  WorldSpec world;
  world.generation = 5;
  world.rank = rank;
  world.hosts.assign(kSize, "host");
  world.secret = "secret";
  return world;
}

class TcpStrangerTest : public testing::Test {
 protected:
  void SetUp() override {
    BackendOptions options;
    options.backend = "tcp";
    for (int rank = 0; rank < kSize; ++rank) {
      auto connector = BeginConnect(World(rank), options);
      ASSERT_TRUE(connector.ok()) << connector.status();
      offers_.push_back((*connector)->offer());
      connectors_.push_back(std::move(*connector));
    }
  }

  TcpAddress AddressOf(int rank) {
    std::string payload =
        OpenOffer(World(rank), rank, "tcp", offers_[rank]).value();
    absl::string_view rest = payload;
    TcpAddress address;
    EXPECT_TRUE(TakeText(rest, address.host) && TakeRaw(rest, address.port));
    return address;
  }

  // A stranger's connection, kept open, on which `bytes` were sent.
  void Intrude(int rank, const std::string& bytes) {
    absl::StatusOr<Fd> socket = Dial(AddressOf(rank));
    ASSERT_TRUE(socket.ok()) << socket.status();
    // On the loopback the listener's queue takes it at once.
    EXPECT_EQ(send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    strangers_.push_back(std::move(*socket));
  }

  // All members connect and add up something.
  void ExpectWorldWorks() {
    std::vector<absl::Status> results(kSize);
    {
      std::vector<Thread> threads;
      for (int rank = 0; rank < kSize; ++rank) {
        threads.emplace_back(
            "member", [this, rank, &results] { results[rank] = Use(rank); });
      }
    }
    for (const absl::Status& result : results)
      EXPECT_TRUE(result.ok()) << result;
  }

  std::vector<std::unique_ptr<Connector>> connectors_;
  std::vector<std::string> offers_;
  std::vector<Fd> strangers_;

 private:
  absl::Status Use(int rank) {
    auto world = connectors_[rank]->Connect(offers_, kLong);
    if (!world.ok()) return world.status();
    std::vector<float> data(100000, 1);
    const absl::Status status = (*world)->AllReduce(data.data(), data.size(),
                                                    DataType::kFloat32, kLong);
    if (status.ok() && data[50000] != kSize) {
      return absl::InternalError("wrong sum");
    }
    return status;
  }
};

TEST_F(TcpStrangerTest, GarbageIsDropped) {
  for (int rank = 0; rank < kSize; ++rank) {
    Intrude(rank, "GET / HTTP/1.1\r\n\r\n");
    Intrude(rank, std::string(100000, '\xff'));
    Intrude(rank, std::string(TcpHandshake::kHelloBytes, '\0'));
  }
  ExpectWorldWorks();
}

TEST_F(TcpStrangerTest, NobodyWaitsForTheSilent) {
  for (int rank = 0; rank < kSize; ++rank) {
    Intrude(rank, "");
    // The first bytes of a hello.
    Intrude(rank, "EDLH1");
  }
  ExpectWorldWorks();
}

TEST_F(TcpStrangerTest, ManyStrangersPushOutEachOther) {
  for (int i = 0; i < 500; ++i) Intrude(0, "");
  ExpectWorldWorks();
}

TEST_F(TcpStrangerTest, OtherSecretsAndGenerationsAreRefused) {
  WorldSpec stale = World(2);
  stale.generation = 4;
  WorldSpec guess = World(2);
  guess.secret = "guess";
  Intrude(0, TcpHandshake::Hello(stale, 0));
  Intrude(0, TcpHandshake::Hello(guess, 0));
  ExpectWorldWorks();
}

// Who replays a member's hello cannot confirm, and does not take its place.
TEST_F(TcpStrangerTest, ReplayedHelloIsOfNoUse) {
  const std::string hello = TcpHandshake::Hello(World(2), 0);
  Intrude(0, hello);
  Intrude(0, hello + std::string(TcpHandshake::kConfirmBytes, 'x'));
  ExpectWorldWorks();
}

TEST_F(TcpStrangerTest, NobodyCanConnectToARunningWorld) {
  const TcpAddress address = AddressOf(0);
  ExpectWorldWorks();
  absl::StatusOr<Fd> socket = Dial(address);
  if (socket.ok()) {
    // Refused at once on the loopback, or in the background.
    char byte = 0;
    EXPECT_LE(recv(socket->get(), &byte, 1, MSG_DONTWAIT), 0);
    EXPECT_FALSE(DialResult(socket->get()).ok() &&
                 send(socket->get(), "x", 1, MSG_NOSIGNAL) == 1);
  }
}

// Who answers in a member's place must know the secret.
TEST_F(TcpStrangerTest, ImpostorListenerIsRefused) {
  absl::StatusOr<TcpListener> impostor = Listen("127.0.0.1");
  ASSERT_TRUE(impostor.ok());
  std::string payload;
  AppendText(impostor->address.host, payload);
  AppendRaw(impostor->address.port, payload);
  offers_[0] = SealOffer(World(0), "tcp", payload);
  absl::Status result;
  Thread member("member", [&] {
    result = connectors_[2]->Connect(offers_, kLong).status();
  });
  pollfd waiting = {impostor->socket.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 40000), 1);
  const Fd accepted(accept(impostor->socket.get(), nullptr, nullptr));
  ASSERT_TRUE(accepted.valid());
  const std::string reply(TcpHandshake::kReplyBytes, 'r');
  EXPECT_EQ(send(accepted.get(), reply.data(), reply.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(reply.size()));
  member.Join();
  EXPECT_TRUE(absl::IsPermissionDenied(result)) << result;
}

}  // namespace
}  // namespace elasticdl::collective
