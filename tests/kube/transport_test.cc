// The contract of Transport, against a real server of our own.
#include "elasticdl/kube/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/test_server.h"

namespace elasticdl::kube {
namespace {

using test::Gate;
using test::TestServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::unique_ptr<Transport> Connect(const ClusterConfig& config) {
  auto transport = MakeTransport(config);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

std::unique_ptr<Transport> Connect(const TestServer& server) {
  ClusterConfig config;
  config.server = server.url();
  return Connect(config);
}

Request Get(std::vector<std::string> path) {
  Request request;
  request.path = std::move(path);
  return request;
}

void SayPath(const httplib::Request& request, httplib::Response& response) {
  response.set_content(request.path, "text/plain");
}

TEST(TransportTest, PathAndQueryArriveAsTheyWere) {
  TestServer server(SayPath);
  ClusterConfig config;
  config.server = server.url() + "/prefix/";
  Request request = Get({"api", "a/b", "..", "c d", "e%f"});
  request.query = {{"labelSelector", "x in (a,b)"}, {"q", "1+1=2&3"}};
  const auto response = Connect(config)->Call(request, kPatience, nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 200);
  EXPECT_THAT(server.targets(),
              ElementsAre("GET /prefix/api/a%2Fb/../c%20d/e%25f?labelSelector="
                          "x%20in%20%28a%2Cb%29&q=1%2B1%3D2%263"));
}

TEST(TransportTest, MethodBodyAndTypeArrive) {
  TestServer server(
      [](const httplib::Request& request, httplib::Response& response) {
        response.status = 201;
        response.set_content(
            absl::StrCat(request.method, " ",
                         request.get_header_value("Content-Type"), " ",
                         request.get_header_value("Accept"), " ", request.body),
            "text/plain");
      });
  const auto transport = Connect(server);
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) {
    Request request = Get({"x"});
    request.method = method;
    request.content_type = "application/merge-patch+json";
    request.body = std::string("{\"a\":\0}", 7);
    const auto response = transport->Call(request, kPatience, nullptr);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->code, 201);
    EXPECT_EQ(response->body,
              absl::StrCat(method, " application/merge-patch+json ",
                           "application/json, */* ", request.body));
  }
}

TEST(TransportTest, AnyCodeIsAnAnswer) {
  TestServer server(
      [](const httplib::Request& request, httplib::Response& response) {
        response.status = std::stoi(request.path.substr(1));
        response.set_content("why", "text/plain");
      });
  const auto transport = Connect(server);
  for (const int code : {200, 302, 401, 404, 409, 410, 500, 503}) {
    const auto response =
        transport->Call(Get({absl::StrCat(code)}), kPatience, nullptr);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->code, code);
    EXPECT_EQ(response->body, "why");
  }
}

TEST(TransportTest, ConnectionsAreReused) {
  TestServer server(SayPath);
  const auto transport = Connect(server);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(transport->Call(Get({"x"}), kPatience, nullptr).ok());
  }
  const std::vector<int> ports = server.connections();
  EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), 1u);
}

TEST(TransportTest, ManyThreadsShareIt) {
  TestServer server(SayPath);
  const auto transport = Connect(server);
  std::atomic<int> right{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back(absl::StrCat("call", t), [&, t] {
        for (int i = 0; i < 25; ++i) {
          const std::string name = absl::StrCat(t, "-", i);
          const auto response =
              transport->Call(Get({name}), kPatience, nullptr);
          if (response.ok() && response->body == "/" + name) ++right;
        }
      });
    }
  }
  EXPECT_EQ(right, 200);
  const std::vector<int> ports = server.connections();
  EXPECT_LE(std::set<int>(ports.begin(), ports.end()).size(), 8u);
}

TEST(TransportTest, BigBodiesInBothDirections) {
  TestServer server(
      [](const httplib::Request& request, httplib::Response& response) {
        response.set_content(request.body + request.body, "text/plain");
      });
  Request request = Get({"x"});
  request.method = "POST";
  request.body = std::string(3 << 20, 'x');
  const auto response = Connect(server)->Call(request, kPatience, nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body.size(), size_t{6} << 20);
}

TEST(TransportTest, DeadlineOfACall) {
  TestServer* running = nullptr;
  TestServer server([&](const httplib::Request&, httplib::Response&) {
    running->over().Wait();
  });
  running = &server;
  const auto response =
      Connect(server)->Call(Get({"x"}), absl::Milliseconds(200), nullptr);
  EXPECT_EQ(response.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(response.status().message()), HasSubstr("200ms"));
}

// A socket that listens but whose owner never accepts.
class SilentSocket {
 public:
  SilentSocket() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size);
    listen(fd_.get(), 5);
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }
  void Close() { fd_.Reset(); }

 private:
  Fd fd_;
  int port_ = 0;
};

TEST(TransportTest, ServerThatIsNotThere) {
  SilentSocket socket;
  ClusterConfig config;
  config.server = socket.url();
  const auto transport = Connect(config);
  EXPECT_EQ(transport->Call(Get({"x"}), absl::Milliseconds(100), nullptr)
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  socket.Close();
  const absl::Status refused =
      transport->Call(Get({"x"}), kPatience, nullptr).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(socket.url()));
  config.server = "https://no-such-host.invalid:6443";
  EXPECT_EQ(
      Connect(config)->Call(Get({"x"}), kPatience, nullptr).status().code(),
      absl::StatusCode::kUnavailable);
}

TEST(TransportTest, CallIsCancelledFromAnotherThread) {
  Gate asked;
  TestServer* running = nullptr;
  TestServer server([&](const httplib::Request&, httplib::Response&) {
    asked.Open();
    running->over().Wait();
  });
  running = &server;
  const auto transport = Connect(server);
  Cancellation cancel;
  Thread thread("cancel", [&] {
    asked.Wait();
    cancel.Cancel();
  });
  EXPECT_EQ(transport->Call(Get({"x"}), absl::InfiniteDuration(), &cancel)
                .status()
                .code(),
            absl::StatusCode::kCancelled);
  // For good: later calls do not even begin.
  EXPECT_EQ(transport->Call(Get({"x"}), kPatience, &cancel).status().code(),
            absl::StatusCode::kCancelled);
}

// Sends one piece per gate.
void SendPieces(httplib::Response& response, std::vector<Gate*> gates,
                bool complete) {
  auto next = std::make_shared<size_t>(0);
  response.set_chunked_content_provider(
      "application/json", [=](size_t, httplib::DataSink& sink) {
        if (*next == gates.size()) {
          if (complete) sink.done();
          return complete;
        }
        if (!gates[*next]->Wait()) return false;
        const std::string piece = absl::StrCat("piece ", (*next)++, "\n");
        return sink.write(piece.data(), piece.size());
      });
}

TEST(TransportTest, StreamDeliversEachPieceAsItComes) {
  Gate first;
  Gate second;
  first.Open();
  TestServer server([&](const httplib::Request&, httplib::Response& response) {
    SendPieces(response, {&first, &second}, true);
  });
  std::string got;
  const auto response = Connect(server)->Stream(Get({"x"}), kPatience, nullptr,
                                                [&](absl::string_view bytes) {
                                                  absl::StrAppend(&got, bytes);
                                                  // The second piece is sent
                                                  // only when the first has
                                                  // come.
                                                  if (got == "piece 0\n")
                                                    second.Open();
                                                  return true;
                                                });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 200);
  EXPECT_EQ(response->body, "");
  EXPECT_EQ(got, "piece 0\npiece 1\n");
}

TEST(TransportTest, StreamEndsWhenItsReaderHasEnough) {
  Gate first;
  Gate never;
  first.Open();
  TestServer server([&](const httplib::Request&, httplib::Response& response) {
    SendPieces(response, {&first, &never}, true);
  });
  const auto transport = Connect(server);
  const auto response = transport->Stream(
      Get({"x"}), kPatience, nullptr, [](absl::string_view) { return false; });
  EXPECT_EQ(response.status().code(), absl::StatusCode::kCancelled);
  never.Open();
}

TEST(TransportTest, StreamIsCancelledFromAnotherThread) {
  Gate first;
  Gate never;
  first.Open();
  TestServer server([&](const httplib::Request&, httplib::Response& response) {
    SendPieces(response, {&first, &never}, true);
  });
  Gate got_first;
  Cancellation cancel;
  Thread thread("cancel", [&] {
    got_first.Wait();
    cancel.Cancel();
  });
  const auto response = Connect(server)->Stream(
      Get({"x"}), absl::InfiniteDuration(), &cancel, [&](absl::string_view) {
        got_first.Open();
        return true;
      });
  EXPECT_EQ(response.status().code(), absl::StatusCode::kCancelled);
  never.Open();
}

TEST(TransportTest, SilenceOfAStreamHasALimit) {
  Gate first;
  Gate never;
  first.Open();
  TestServer server([&](const httplib::Request&, httplib::Response& response) {
    SendPieces(response, {&first, &never}, true);
  });
  int pieces = 0;
  const auto response = Connect(server)->Stream(
      Get({"x"}), absl::Seconds(3), nullptr, [&](absl::string_view) {
        ++pieces;
        return true;
      });
  EXPECT_EQ(response.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pieces, 1);
  never.Open();
}

TEST(TransportTest, BrokenStreamIsUnavailable) {
  Gate first;
  first.Open();
  TestServer server([&](const httplib::Request&, httplib::Response& response) {
    SendPieces(response, {&first}, /*complete=*/false);
  });
  std::string got;
  const auto response = Connect(server)->Stream(Get({"x"}), kPatience, nullptr,
                                                [&](absl::string_view bytes) {
                                                  absl::StrAppend(&got, bytes);
                                                  return true;
                                                });
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(got, "piece 0\n");
}

TEST(TransportTest, RefusedStreamIsCollected) {
  TestServer server([](const httplib::Request&, httplib::Response& response) {
    response.status = 410;
    response.set_content("too old", "text/plain");
  });
  const auto response = Connect(server)->Stream(
      Get({"x"}), kPatience, nullptr, [](absl::string_view) {
        ADD_FAILURE() << "an error is no piece";
        return true;
      });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->code, 410);
  EXPECT_EQ(response->body, "too old");
}

TEST(TransportTest, ProxyIsUsed) {
  TestServer proxy(SayPath);
  ClusterConfig config;
  config.server = "http://cluster.invalid:6443";
  config.proxy_url = proxy.url();
  const auto transport = Connect(config);
  ASSERT_TRUE(transport->Call(Get({"x"}), kPatience, nullptr).ok());
  EXPECT_THAT(proxy.targets(),
              ElementsAre("GET http://cluster.invalid:6443/x"));
}

TEST(TransportTest, UnusableConfigurationIsRefused) {
  ClusterConfig config;
  config.origin = "context x of y";
  for (const char* server : {"", "127.0.0.1:6443", "ftp://x", "https://"}) {
    config.server = server;
    const auto transport = MakeTransport(config);
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument)
        << server;
    EXPECT_THAT(std::string(transport.status().message()),
                HasSubstr("context x of y"));
  }
  config.server = "https://h";
  config.ca_pem = "nonsense";
  EXPECT_THAT(std::string(MakeTransport(config).status().message()),
              HasSubstr("certificate authority"));
  config.ca_pem = "";
  config.client_key_pem = "-----BEGIN PRIVATE KEY-----";
  EXPECT_THAT(std::string(MakeTransport(config).status().message()),
              HasSubstr("together"));
}

}  // namespace
}  // namespace elasticdl::kube
