// The status server over real connections on the loopback.
#include "http_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

JobStatus Example() {
  JobStatus status;
  status.job = "mnist";
  status.generation = 2;
  status.step = 100;
  status.epoch = 1;
  status.num_epochs = 2;
  status.records_per_s = 12.5;
  status.loss = 0.25;
  status.workers = 1;
  status.target_workers = 2;
  status.pods = {
      {"elasticdl-worker-mnist-0", 0, "worker", 77, "Running", "no room"}};
  status.evaluations = {{100, {{"accuracy", 0.9}}}};
  return status;
}

TEST(StatusTextTest, JsonHasTheFieldsOfTheApi) {
  const Json json = Json::parse(StatusToJson(Example()));
  EXPECT_EQ(json["job"], "mnist");
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["generation"], 2);
  EXPECT_EQ(json["step"], 100);
  EXPECT_EQ(json["epoch"], 1);
  EXPECT_EQ(json["records_per_s"], 12.5);
  EXPECT_EQ(json["loss"], 0.25);
  EXPECT_EQ(json["pods"][0]["pid"], 77);
  EXPECT_EQ(json["pods"][0]["type"], "worker");
  EXPECT_EQ(json["pods"][0]["message"], "no room");
  EXPECT_EQ(json["evaluations"][0]["metrics"]["accuracy"], 0.9);
}

TEST(StatusTextTest, NumbersThatJsonLacksAreNull) {
  JobStatus status = Example();
  status.loss = std::nan("");
  status.records_per_s = INFINITY;
  const Json json = Json::parse(StatusToJson(status));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["records_per_s"].is_null());
  EXPECT_THAT(StatusToMetrics(status),
              HasSubstr("elasticdl_loss{job=\"mnist\"} NaN\n"));
}

TEST(StatusTextTest, MetricsAreInPrometheusFormat) {
  JobStatus status = Example();
  status.job = "a\"b";
  const std::string text = StatusToMetrics(status);
  EXPECT_THAT(text, HasSubstr("# TYPE elasticdl_step gauge\n"
                              "elasticdl_step{job=\"a\\\"b\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("elasticdl_pods{job=\"a\\\"b\",type=\"worker\","
                              "state=\"Running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("metric=\"accuracy\"} 0.9\n"));
}

TEST(StatusBoardTest, HistoryIsThinnedNotCut) {
  StatusBoard board;
  for (int i = 0; i < 5000; ++i) {
    JobStatus status;
    status.step = i;
    board.Set(status, absl::UnixEpoch() + absl::Seconds(i));
  }
  const std::vector<StatusPoint> points = board.History();
  EXPECT_LE(points.size(), StatusBoard::kMaxPoints);
  EXPECT_GT(points.size(), StatusBoard::kMaxPoints / 4);
  EXPECT_EQ(points.front().step, 0);
  EXPECT_GT(points.back().step, 4900);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LT(points[i - 1].seconds, points[i].seconds);
  }
}

class HttpStatusTest : public ::testing::Test {
 protected:
  HttpStatusTest() {
    board_.Set(Example(), absl::UnixEpoch());
    HttpStatus::Commands commands;
    commands.stop = [this] {
      ++stops_;
      return absl::OkStatus();
    };
    commands.scale = [this](const ScaleRequest& request) {
      const int64_t n = request.num_workers.value_or(0);
      scales_.push_back(n);
      if (request.num_servers.has_value()) {
        servers_.push_back(*request.num_servers);
      }
      return n > 100 ? absl::FailedPreconditionError("the job is ending")
                     : absl::OkStatus();
    };
    HttpStatus::Options options;
    options.token = "secret";
    auto server = HttpStatus::Start(options, board_, commands);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<httplib::Client>("http://" + server_->address());
  }

  const httplib::Headers auth_ = {{"Authorization", "Bearer secret"}};
  StatusBoard board_;
  int stops_ = 0;
  std::vector<int64_t> scales_;
  std::vector<int64_t> servers_;
  std::unique_ptr<HttpStatus> server_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(HttpStatusTest, ServesStatusHistoryAndMetrics) {
  auto reply = client_->Get("/api/status", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, StatusToJson(Example()));
  EXPECT_EQ(reply->get_header_value("Content-Type"), "application/json");
  reply = client_->Get("/api/history", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "[[0.0,100,0.25,12.5]]");
  reply = client_->Get("/metrics", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, StatusToMetrics(Example()));
  reply = client_->Get("/nothing", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
}

TEST_F(HttpStatusTest, EveryPathNeedsTheToken) {
  const httplib::Headers wrong = {{"Authorization", "Bearer Secret"}};
  for (const char* path :
       {"/", "/api/status", "/api/history", "/metrics", "/nothing"}) {
    for (const httplib::Headers& headers : {httplib::Headers(), wrong}) {
      const auto reply = client_->Get(path, headers);
      ASSERT_TRUE(reply) << path;
      EXPECT_EQ(reply->status, 401) << path;
    }
  }
  for (const char* path : {"/api/stop", "/api/scale?num_workers=2",
                           "/api/stop?token=wrong", "/api/stop?token="}) {
    const auto reply = client_->Post(path);
    ASSERT_TRUE(reply) << path;
    EXPECT_EQ(reply->status, 401) << path;
  }
  EXPECT_EQ(client_->Get("/api/status?token=wrong")->status, 401);
  EXPECT_EQ(stops_, 0);
  EXPECT_TRUE(scales_.empty());
}

// As it comes through a Kubernetes API server.
TEST_F(HttpStatusTest, TokenInTheQueryIsAsGoodAsTheHeader) {
  auto reply = client_->Get("/api/status?token=secret");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  reply = client_->Post("/api/scale?num_workers=2&token=secret");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(scales_, ::testing::ElementsAre(2));
  // A header that is there counts.
  reply = client_->Get("/api/status?token=secret",
                       {{"Authorization", "Bearer wrong"}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 401);
}

TEST_F(HttpStatusTest, PageOpensByItsLink) {
  EXPECT_EQ(server_->page_url(),
            absl::StrCat("http://", server_->address(), "/?token=secret"));
  const auto reply = client_->Get("/?token=secret");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->body, HasSubstr("<!doctype html>"));
  EXPECT_THAT(reply->body, ::testing::Not(HasSubstr("secret")));
  EXPECT_EQ(client_->Get("/?token=wrong")->status, 401);
}

TEST_F(HttpStatusTest, CommandsReachTheMaster) {
  auto reply = client_->Post("/api/stop", auth_, "", "text/plain");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(client_->Post("/api/scale?num_workers=4", auth_, "", "text/plain")
                ->status,
            200);
  for (const char* bad : {"0", "-1", "x", "", "4.5"}) {
    reply = client_->Post(absl::StrCat("/api/scale?num_workers=", bad), auth_,
                          "", "text/plain");
    EXPECT_EQ(reply->status, 400) << bad;
  }
  reply = client_->Post("/api/scale?num_workers=101", auth_, "", "text/plain");
  EXPECT_EQ(reply->status, 409);
  EXPECT_THAT(reply->body, HasSubstr("the job is ending"));
  EXPECT_THAT(scales_, ElementsAre(4, 101));
  for (const char* query : {"num_ps_pods=3", "num_workers=2&num_ps_pods=5"}) {
    reply = client_->Post(absl::StrCat("/api/scale?", query), auth_, "",
                          "text/plain");
    EXPECT_EQ(reply->status, 200) << query;
  }
  for (const char* query :
       {"", "num_ps_pods=0", "num_ps_pods=", "num_workers=2&num_ps_pods=x"}) {
    reply = client_->Post(absl::StrCat("/api/scale?", query), auth_, "",
                          "text/plain");
    EXPECT_EQ(reply->status, 400) << query;
  }
  EXPECT_THAT(scales_, ElementsAre(4, 101, 0, 2));
  EXPECT_THAT(servers_, ElementsAre(3, 5));
}

TEST_F(HttpStatusTest, ListensOnTheLoopbackOnly) {
  EXPECT_THAT(server_->address(), ::testing::StartsWith("127.0.0.1:"));
}

TEST_F(HttpStatusTest, WhoLooksSeesTheEnd) {
  server_->ShowEnd();  // nobody looks: returns at once
  EXPECT_EQ(client_->Get("/api/status", auth_)->status, 200);
  std::atomic<bool> shown = false;
  Thread end("end", [&] {
    server_->ShowEnd();
    shown = true;
  });
  while (!shown) EXPECT_EQ(client_->Get("/api/status", auth_)->status, 200);
}

TEST_F(HttpStatusTest, StopEndsTheService) {
  server_->Stop();
  server_->Stop();
  EXPECT_FALSE(client_->Get("/api/status", auth_));
}

TEST_F(HttpStatusTest, PortInUseIsAnError) {
  HttpStatus::Options options;
  options.token = "t";
  options.port = std::stoi(server_->address().substr(10));
  const auto second = HttpStatus::Start(options, board_, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(server_->address()));
}

TEST_F(HttpStatusTest, StartAndStopAtOnce) {
  for (int i = 0; i < 20; ++i) {
    HttpStatus::Options options;
    options.token = "t";
    ASSERT_TRUE(HttpStatus::Start(options, board_, {}).ok());
  }
}

TEST(HttpStatusOptionsTest, EmptyTokenIsRefused) {
  StatusBoard board;
  EXPECT_FALSE(HttpStatus::Start({}, board, {}).ok());
}

}  // namespace
}  // namespace elasticdl::master
