// A worker's connection to masters that come and go, over loopback.
#include "elasticdl/rendezvous/master_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/rendezvous/stream_server.h"

namespace elasticdl::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A deadline that only a hang can reach.
constexpr absl::Duration kLong = absl::Seconds(30);

struct Event {
  ConnectionId connection = 0;
  bool closed = false;
  v1::WorkerMessage message;
};

class MasterLinkTest : public testing::Test, public StreamSink {
 protected:
  void OnMessage(ConnectionId connection, v1::WorkerMessage message) override {
    events_.Push({connection, false, std::move(message)});
  }
  void OnClosed(ConnectionId connection, const absl::Status&) override {
    events_.Push({connection, true, {}});
  }

  void SetUp() override { StartMaster("127.0.0.1:0"); }
  void TearDown() override { server_->Shutdown(absl::ZeroDuration()); }

  void StartMaster(const std::string& address) {
    StreamServer::Options options;
    options.address = address;
    options.token = "secret";
    auto server = StreamServer::Start(options, *this);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = absl::StrCat("127.0.0.1:", server_->port());
  }

  StreamClient::Options Options() const {
    StreamClient::Options options;
    options.address = address_;
    options.token = "secret";
    options.connect_timeout = kLong;
    return options;
  }

  // The next Hello; what else happens on the way is of no interest.
  ConnectionId AwaitHello(bool resuming) {
    while (true) {
      const auto event = events_.Pop(kLong);
      if (!event.has_value()) break;
      if (event->closed || !event->message.has_hello()) continue;
      EXPECT_EQ(event->message.hello().resuming(), resuming);
      return event->connection;
    }
    ADD_FAILURE() << "no Hello";
    return 0;
  }
  void Welcome(ConnectionId connection) {
    v1::MasterMessage message;
    message.mutable_welcome()->set_worker_id(7);
    server_->Send({connection}, message);
  }
  // A link on which the master has died.
  std::unique_ptr<MasterLink> MakeOrphan() {
    auto link = std::make_unique<MasterLink>(Options());
    Thread master("master", [this] { Welcome(AwaitHello(false)); });
    EXPECT_TRUE(link->Attach(-1).ok());
    master.Join();
    server_->Shutdown(absl::ZeroDuration());
    EXPECT_FALSE(link->Receive(kLong).has_value());
    EXPECT_TRUE(link->ended());
    StartMaster(address_);
    return link;
  }

  std::unique_ptr<StreamServer> server_;
  std::string address_;
  Queue<Event> events_{100'000};
};

TEST_F(MasterLinkTest, FindsTheNextMaster) {
  const auto link = MakeOrphan();
  Thread master("master", [this] { Welcome(AwaitHello(true)); });
  const absl::Status back = link->Reattach(7, kLong);
  EXPECT_TRUE(back.ok()) << back;
  EXPECT_FALSE(link->ended());
  link->End(kLong);
}

// The worker is done while the next master has its Hello, but has not answered.
TEST_F(MasterLinkTest, EndDuringReattachEndsTheReceiver) {
  const auto link = MakeOrphan();
  absl::Status back;
  Thread receiver("receiver", [&] {
    back = link->Reattach(7, kLong);
    link->Receive(kLong);
  });
  const ConnectionId connection = AwaitHello(true);
  link->End(kLong);
  Welcome(connection);
  receiver.Join();
  EXPECT_TRUE(absl::IsCancelled(back)) << back;
  EXPECT_TRUE(link->ended());
}

// The same, with the answer under way.
TEST_F(MasterLinkTest, EndAtTheMomentOfTheWelcome) {
  for (int i = 0; i < 20; ++i) {
    const auto link = MakeOrphan();
    Thread receiver("receiver", [&] {
      if (link->Reattach(7, kLong).ok()) link->Receive(kLong);
    });
    Welcome(AwaitHello(true));
    link->End(kLong);
    receiver.Join();
    EXPECT_TRUE(link->ended());
  }
}

TEST_F(MasterLinkTest, EndBeforeAnyStream) {
  MasterLink link(Options());
  link.End(kLong);
  EXPECT_TRUE(absl::IsCancelled(link.Attach(-1).status()));
}

TEST_F(MasterLinkTest, AWrongTokenIsNotTriedAgain) {
  StreamClient::Options options = Options();
  options.token = "guessed";
  MasterLink link(options);
  const absl::Status status = link.Reattach(7, absl::InfiniteDuration());
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
}

TEST_F(MasterLinkTest, AnotherVersionIsRefusedAndToldWhatToDo) {
  StreamClient::Options options = Options();
  options.version = "0.0.9 (protocol 0)";
  MasterLink link(options);
  for (const absl::Status& status :
       {link.Attach(-1).status(), link.Reattach(7, absl::InfiniteDuration())}) {
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("this worker is ElasticDL 0.0.9 (protocol 0)"),
                      HasSubstr("the job's master is "), HasSubstr("image")));
  }
  // Nothing of it reached the job.
  EXPECT_EQ(events_.size(), 0u);
}

// The members of each world arrive, whatever form of the list travels.
TEST_F(MasterLinkTest, MembersAreToldByChanges) {
  MasterLink link(Options());
  ConnectionId connection = 0;
  Thread master("master", [&] {
    connection = AwaitHello(false);
    Welcome(connection);
  });
  ASSERT_TRUE(link.Attach(-1).ok());
  master.Join();
  const std::vector<std::vector<int64_t>> worlds = {
      {1, 2, 3}, {1, 3}, {1, 3, 4}, {4, 1}, {7}};
  for (size_t i = 0; i < worlds.size(); ++i) {
    v1::MasterMessage message;
    message.mutable_prepare()->set_generation(static_cast<int64_t>(i) + 1);
    for (const int64_t id : worlds[i]) {
      v1::Member& member = *message.mutable_prepare()->add_members();
      member.set_worker_id(id);
      member.set_host(absl::StrCat("host-", id));
    }
    server_->Send({connection}, message);
    const auto received = link.Receive(kLong);
    ASSERT_TRUE(received.has_value() && received->has_prepare());
    EXPECT_EQ(received->prepare().SerializeAsString(),
              message.prepare().SerializeAsString());
  }
  link.End(kLong);
}

// Who has missed a list gets the newest one whole; an older one is of no use.
TEST_F(MasterLinkTest, AListIsSentAgain) {
  auto stream = StreamClient::Connect(Options());
  ASSERT_TRUE(stream.ok()) << stream.status();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_worker_id(1);
  (*stream)->Send(hello);
  const ConnectionId connection = AwaitHello(false);
  for (const int64_t generation : {1, 2}) {
    v1::MasterMessage message;
    message.mutable_prepare()->set_generation(generation);
    message.mutable_prepare()->add_members()->set_worker_id(1);
    server_->Send({connection}, message);
    const auto received = (*stream)->Receive(kLong);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->prepare().list().base(), generation - 1);
  }
  for (const int64_t generation : {1, 2}) {
    v1::WorkerMessage again;
    again.mutable_prepare_again()->set_generation(generation);
    (*stream)->Send(again);
  }
  const auto received = (*stream)->Receive(kLong);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->prepare().generation(), 2);
  EXPECT_EQ(received->prepare().list().base(), 0);
  EXPECT_EQ(received->prepare().list().ids_size(), 1);
  (*stream)->Close(kLong);
}

}  // namespace
}  // namespace elasticdl::rendezvous
