// The two ends of a worker's stream against each other, over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  void SetUp() override {
    StreamServer::Options options;
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
