// The page of a job on a cluster through a real HTTP server that answers as an
// API server does, and through our own client of it.
#include "cluster/page_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/test_server.h"

namespace elasticdl::cli {
namespace {

using kube::test::Gate;
using kube::test::TestServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kRoot[] =
    "/api/v1/namespaces/ns/pods/elasticdl-master-j:8080/proxy";

// The same on the wire.
constexpr char kWire[] =
    "/api/v1/namespaces/ns/pods/elasticdl-master-j%3A8080/proxy";

class PageForwardTest : public ::testing::Test {
 protected:
  PageForwardTest() {
    kube::ClusterConfig config;
    config.server = server_.url();
    config.token = "user-credential";
    kube::Client::Options options;
    options.namespace_name = "ns";
    client_ =
        std::make_unique<kube::Client>(*kube::MakeTransport(config), options);
    auto forward = PageForward::Start(*client_, Where());
    EXPECT_TRUE(forward.ok()) << forward.status();
    forward_ = *std::move(forward);
  }

  static PageForward::Options Where() {
    PageForward::Options options;
    options.pod = "elasticdl-master-j";
    options.pod_port = 8080;
    options.token = "s3cret";
    return options;
  }

  int port() const {
    int port = 0;
    const std::string url = forward_->url();
    const size_t begin = std::string("http://127.0.0.1:").size();
    EXPECT_TRUE(absl::SimpleAtoi(
        url.substr(begin, url.find('/', begin) - begin), &port))
        << url;
    return port;
  }
  std::string token() const {
    const std::string url = forward_->url();
    return url.substr(url.find("token=") + 6);
  }
  httplib::Result Get(const std::string& path, const std::string& token) {
    httplib::Client browser("127.0.0.1", port());
    browser.set_read_timeout(30, 0);
    httplib::Headers headers;
    if (!token.empty()) headers.emplace("Authorization", "Bearer " + token);
    return browser.Get(path, headers);
  }

  // Set before a request.
  TestServer::Handler pod_ = [](const httplib::Request& request,
                                httplib::Response& response) {
    response.set_content("pod says " + request.path, "application/json");
  };
  TestServer server_{
      [this](const httplib::Request& request, httplib::Response& response) {
        EXPECT_EQ(request.get_header_value("Authorization"),
                  "Bearer user-credential");
        pod_(request, response);
      }};
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<PageForward> forward_;
};

TEST_F(PageForwardTest, RequestsReachThePodWithTheUsersCredentials) {
  // The job's token stays out of browsers and their histories.
  EXPECT_THAT(forward_->url(), Not(HasSubstr("s3cret")));
  const auto status = Get("/api/v1/status", token());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->status, 200);
  EXPECT_EQ(status->body, absl::StrCat("pod says ", kRoot, "/api/v1/status"));
  const auto page = Get("/?token=" + token(), "");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->get_header_value("Content-Type"), HasSubstr("text/html"));
  EXPECT_THAT(page->get_header_value("Content-Security-Policy"),
              HasSubstr("default-src 'none'"));
  ASSERT_TRUE(Get("/api/v1/update?since=12", token()));
  for (const char* script : {"/page.js", "/page.js?x=1"}) {
    const auto file = Get(script, "");
    ASSERT_TRUE(file);
    EXPECT_EQ(file->body, absl::StrCat("pod says ", kRoot, "/page.js"));
  }
  EXPECT_THAT(
      server_.targets(),
      ElementsAre(
          absl::StrCat("GET ", kWire, "/api/v1/status?token=s3cret"),
          absl::StrCat("GET ", kWire, "/?token=s3cret"),
          absl::StrCat("GET ", kWire, "/api/v1/update?since=12&token=s3cret"),
          absl::StrCat("GET ", kWire, "/page.js")));
}

TEST_F(PageForwardTest, WhoDoesNotKnowTheTokenGetsNothing) {
  for (const char* path :
       {"/", "/api/v1/status", "/api/v1/stream", "/metrics", "/?token=wrong"}) {
    for (const char* token : {"", "wrong", "s3cret"}) {
      const auto answer = Get(path, token);
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->status, 401) << path;
    }
  }
  httplib::Client browser("127.0.0.1", port());
  EXPECT_EQ(browser.Post("/api/v1/stop")->status, 401);
  EXPECT_THAT(server_.targets(), IsEmpty());
}

// Nor can anybody fill this process's memory, or use another site's name.
TEST_F(PageForwardTest, OddRequestsAreRefusedBeforeTheirBody) {
  httplib::Client browser("127.0.0.1", port());
  browser.set_read_timeout(30, 0);
  const auto endless = browser.Post(
      "/api/v1/stop",
      [](size_t, httplib::DataSink& sink) {
        const std::string piece(1000, 'x');
        return sink.write(piece.data(), piece.size());
      },
      "text/plain");
  EXPECT_TRUE(!endless || endless->status == 411);
  EXPECT_EQ(browser.Put("/api/v1/stop")->status, 405);
  EXPECT_EQ(browser
                .Get("/api/v1/status", {{"Host", "evil.example"},
                                        {"Authorization", "Bearer " + token()}})
                ->status,
            403);
  EXPECT_THAT(server_.targets(), IsEmpty());
}

// Nothing but the page: not other pods, nor other parts of the API.
TEST_F(PageForwardTest, OtherPathsStayHere) {
  for (const char* path :
       {"/api/v1/../../../secrets", "/..", "/api", "/healthz", "/x",
        "/api/v1/status/..", "/%2e%2e/%2e%2e/secrets", "/page.js/../x"}) {
    const auto answer = Get(path, token());
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 404) << path;
  }
  EXPECT_THAT(server_.targets(), IsEmpty());
}

TEST_F(PageForwardTest, SteeringIsPassedOn) {
  pod_ = [](const httplib::Request& request, httplib::Response& response) {
    EXPECT_EQ(request.method, "POST");
    response.status = 409;
    response.set_content(R"({"error":"the job is ending"})",
                         "application/json");
  };
  httplib::Client browser("127.0.0.1", port());
  const auto answer =
      browser.Post("/api/v1/scale?num_workers=5",
                   httplib::Headers{{"Authorization", "Bearer " + token()}}, "",
                   "text/plain");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 409);
  EXPECT_EQ(answer->body, R"({"error":"the job is ending"})");
  EXPECT_THAT(server_.targets(),
              ElementsAre(absl::StrCat(
                  "POST ", kWire, "/api/v1/scale?num_workers=5&token=s3cret")));
}

TEST_F(PageForwardTest, ARefusalOfTheClusterIsToldAsThat) {
  pod_ = [](const httplib::Request&, httplib::Response& response) {
    response.status = 403;
    response.set_content(R"({"kind":"Status","message":"no pods/proxy"})",
                         "application/json");
  };
  const auto answer = Get("/api/v1/status", token());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 502);
  EXPECT_THAT(answer->body, HasSubstr("no pods/proxy"));
}

// Server-sent events come as they are sent, and end when either end goes.
TEST_F(PageForwardTest, AStreamArrivesPieceByPiece) {
  Gate second;
  Gate gone;
  pod_ = [&](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider(
        "text/event-stream",
        [&, sent = 0](size_t, httplib::DataSink& sink) mutable {
          if (sent == 1 && !second.Wait()) return false;
          const std::string text = absl::StrCat("data: ", ++sent, "\n\n");
          return sink.write(text.data(), text.size());
        },
        [&](bool) { gone.Open(); });
  };
  httplib::Client browser("127.0.0.1", port());
  browser.set_read_timeout(30, 0);
  std::string heard;
  const auto result =
      browser.Get("/api/v1/stream?since=3",
                  httplib::Headers{{"Authorization", "Bearer " + token()}},
                  [&](const char* data, size_t size) {
                    heard.append(data, size);
                    // The first is here before the second is sent.
                    if (heard == "data: 1\n\n") second.Open();
                    return !absl::StrContains(heard, "data: 2\n\n");
                  });
  EXPECT_THAT(heard, HasSubstr("data: 1\n\ndata: 2\n\n"));
  EXPECT_FALSE(result) << "the browser has hung up";
  EXPECT_TRUE(gone.Wait()) << "the master's end is still there";
  EXPECT_THAT(server_.targets(),
              ElementsAre(absl::StrCat("GET ", kWire,
                                       "/api/v1/stream?since=3&token=s3cret")));
}

TEST_F(PageForwardTest, AStreamThatIsSilentEndsWithTheForward) {
  Gate here;
  pod_ = [&](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/event-stream",
                                          [&](size_t, httplib::DataSink& sink) {
                                            here.Open();
                                            server_.over().Wait();
                                            sink.done();
                                            return true;
                                          });
  };
  Thread browser("browser", [&] { Get("/api/v1/stream", token()); });
  ASSERT_TRUE(here.Wait());
  forward_.reset();
  browser.Join();
}

TEST_F(PageForwardTest, APortThatIsTakenIsNamed) {
  PageForward::Options options = Where();
  options.port = port();
  const auto second = PageForward::Start(*client_, options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", options.port)));
}

}  // namespace
}  // namespace elasticdl::cli
