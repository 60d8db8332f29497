// The two ends of a worker's stream against each other, over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "elasticdl/common/queue.h"
#include "elasticdl/rendezvous/stream_client.h"
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
  absl::Status status;
};

class Recorder : public StreamSink {
 public:
  void OnMessage(ConnectionId connection, v1::WorkerMessage message) override {
    events.Push({connection, false, std::move(message), absl::OkStatus()});
  }
  void OnClosed(ConnectionId connection, const absl::Status& status) override {
    events.Push({connection, true, {}, status});
  }
  Queue<Event> events{100'000};
};

class StreamTest : public testing::Test {
 protected:
  void SetUp() override { Start(StreamServer::Options()); }
  void Start(StreamServer::Options options) {
    options.address = "127.0.0.1:0";
    options.token = "secret";
    auto server = StreamServer::Start(options, sink_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (server_) server_->Shutdown(absl::ZeroDuration());
  }

  StreamClient::Options ClientOptions(const std::string& token = "secret") {
    StreamClient::Options options;
    options.address = absl::StrCat("127.0.0.1:", server_->port());
    options.token = token;
    return options;
  }

  static v1::WorkerMessage Hello(int64_t id) {
    v1::WorkerMessage message;
    message.mutable_hello()->set_worker_id(id);
    return message;
  }

  Event Next() {
    auto event = sink_.events.Pop(kLong);
    EXPECT_TRUE(event.has_value());
    return event.value_or(Event{});
  }

  Recorder sink_;
  std::unique_ptr<StreamServer> server_;
};

TEST_F(StreamTest, MessagesPassInOrderBothWays) {
  auto client = StreamClient::Connect(ClientOptions());
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 1000; ++i) (*client)->Send(Hello(i));
  ConnectionId connection = 0;
  for (int i = 0; i < 1000; ++i) {
    const Event event = Next();
    ASSERT_FALSE(event.closed);
    EXPECT_EQ(event.message.hello().worker_id(), i);
    connection = event.connection;
  }
  for (int i = 0; i < 1000; ++i) {
    v1::MasterMessage message;
    message.mutable_task()->set_task_id(i);
    server_->Send({connection}, message);
  }
  for (int i = 0; i < 1000; ++i) {
    auto message = (*client)->Receive(kLong);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->task().task_id(), i);
  }
  (*client)->Close(kLong);
  const Event closed = Next();
  EXPECT_TRUE(closed.closed);
  EXPECT_TRUE(closed.status.ok()) << closed.status;
}

TEST_F(StreamTest, WhatWasSentBeforeCloseArrives) {
  auto client = StreamClient::Connect(ClientOptions());
  ASSERT_TRUE(client.ok());
  for (int i = 0; i < 100; ++i) (*client)->Send(Hello(i));
  (*client)->Close(kLong);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Next().closed);
  EXPECT_TRUE(Next().closed);
}

TEST_F(StreamTest, RefusesAWrongOrMissingToken) {
  for (const char* token : {"wrong", "", "secretsecret", "secre"}) {
    auto client = StreamClient::Connect(ClientOptions(token));
    ASSERT_TRUE(client.ok());
    EXPECT_FALSE((*client)->Receive(kLong).has_value());
    EXPECT_TRUE((*client)->ended());
    EXPECT_EQ((*client)->status().code(), absl::StatusCode::kUnauthenticated);
  }
  EXPECT_EQ(sink_.events.size(), 0u);
}

TEST_F(StreamTest, ServerCloseDeliversWhatWasQueuedAndTheReason) {
  auto client = StreamClient::Connect(ClientOptions());
  ASSERT_TRUE(client.ok());
  (*client)->Send(Hello(1));
  const ConnectionId connection = Next().connection;
  v1::MasterMessage message;
  message.mutable_stop()->set_reason("done");
  server_->Send({connection}, message);
  server_->Close(connection, absl::FailedPreconditionError("fenced"));
  auto received = (*client)->Receive(kLong);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->stop().reason(), "done");
  EXPECT_FALSE((*client)->Receive(kLong).has_value());
  EXPECT_EQ((*client)->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Next().closed);
}

TEST_F(StreamTest, ShutdownEndsTheClients) {
  auto client = StreamClient::Connect(ClientOptions());
  ASSERT_TRUE(client.ok());
  (*client)->Send(Hello(1));
  Next();
  server_->Shutdown(absl::Seconds(1));
  EXPECT_FALSE((*client)->Receive(kLong).has_value());
  EXPECT_FALSE((*client)->status().ok());
  server_.reset();
}

// Two streams to a thread: they come, go and come again on several threads.
TEST_F(StreamTest, ManyStreamsOnSeveralThreads) {
  constexpr int kStreams = 9;
  StreamServer::Options options;
  options.streams_per_thread = 2;
  server_.reset();
  Start(options);
  for (int round = 0; round < 3; ++round) {
    std::map<int64_t, std::unique_ptr<StreamClient>> clients;
    for (int i = 0; i < kStreams; ++i) {
      auto client = StreamClient::Connect(ClientOptions());
      ASSERT_TRUE(client.ok()) << client.status();
      (*client)->Send(Hello(i));
      clients[i] = *std::move(client);
    }
    std::map<int64_t, ConnectionId> connections;
    while (connections.size() < kStreams) {
      const Event event = Next();
      ASSERT_FALSE(event.closed) << event.status;
      connections[event.message.hello().worker_id()] = event.connection;
    }
    std::vector<ConnectionId> all;
    for (const auto& [id, connection] : connections) {
      v1::MasterMessage message;
      message.mutable_welcome()->set_worker_id(id);
      server_->Send({connection}, message);
      all.push_back(connection);
    }
    v1::MasterMessage wake;
    wake.mutable_wake();
    server_->Send(all, wake);
    for (auto& [id, client] : clients) {
      auto own = client->Receive(kLong);
      ASSERT_TRUE(own.has_value());
      EXPECT_EQ(own->welcome().worker_id(), id);
      auto shared = client->Receive(kLong);
      ASSERT_TRUE(shared.has_value());
      EXPECT_TRUE(shared->has_wake());
    }
    // The last ones do not say that they leave.
    if (round == 2) break;
    for (auto& [id, client] : clients) client->Close(kLong);
    for (int i = 0; i < kStreams; ++i) {
      const Event event = Next();
      EXPECT_TRUE(event.closed);
      EXPECT_TRUE(event.status.ok()) << event.status;
    }
  }
  for (int i = 0; i < kStreams; ++i) EXPECT_TRUE(Next().closed);
}

// Clients that are gone before their call has been handled, and calls while the
// server ends, leave nothing behind.
TEST_F(StreamTest, ShutdownWhileOthersConnect) {
  StreamServer::Options options;
  options.streams_per_thread = 1;
  server_.reset();
  Start(options);
  const StreamClient::Options to = ClientOptions();
  Queue<int> connected{1000};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0;; ++round) {
        StreamClient::Options options = to;
        options.connect_timeout = absl::Milliseconds(200);
        auto client = StreamClient::Connect(options);
        if (!client.ok()) return;
        (*client)->Send(Hello(round));
        connected.Push(round);
        // Half of them are cut off, the other half end in order.
        (*client)->Close(round % 2 == 0 ? absl::ZeroDuration() : kLong);
      }
    });
  }
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(connected.Pop(kLong).has_value());
  server_->Shutdown(absl::ZeroDuration());
  const size_t events = sink_.events.size();
  connected.Close();
  for (std::thread& thread : threads) thread.join();
  // Nobody was called after Shutdown, and each stream that began has ended.
  EXPECT_EQ(sink_.events.size(), events);
  std::set<ConnectionId> open;
  while (sink_.events.size() > 0) {
    const Event event = Next();
    if (event.closed) {
      open.erase(event.connection);
    } else {
      open.insert(event.connection);
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST_F(StreamTest, NobodyAtTheAddressIsADeadline) {
  StreamClient::Options options = ClientOptions();
  server_->Shutdown(absl::ZeroDuration());
  options.connect_timeout = absl::Milliseconds(50);
  auto client = StreamClient::Connect(options);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(client.status().message().find(options.address), std::string::npos);
}

TEST_F(StreamTest, TwoServersCannotShareAPort) {
  StreamServer::Options options;
  options.address = absl::StrCat("127.0.0.1:", server_->port());
  options.token = "x";
  Recorder other;
  const absl::Status taken = StreamServer::Start(options, other).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("the port is taken"));
}

TEST_F(StreamTest, WhyItCannotListenIsTold) {
  StreamServer::Options options;
  options.address = "192.0.2.1:0";  // Nobody's.
  options.token = "x";
  Recorder other;
  const absl::Status status = StreamServer::Start(options, other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot listen on 192.0.2.1:0: "),
                    HasSubstr("Cannot assign requested address")));
}

TEST_F(StreamTest, AnotherVersionIsRefused) {
  for (const char* version : {"0.0.9 (protocol 0)", "x"}) {
    StreamClient::Options options = ClientOptions();
    options.version = version;
    auto client = StreamClient::Connect(options);
    ASSERT_TRUE(client.ok());
    EXPECT_FALSE((*client)->Receive(kLong).has_value());
    EXPECT_EQ((*client)->status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string((*client)->status().message()),
                AllOf(HasSubstr(version), HasSubstr("the job's master is ")));
  }
  EXPECT_EQ(sink_.events.size(), 0u);
}

}  // namespace
}  // namespace elasticdl::rendezvous
