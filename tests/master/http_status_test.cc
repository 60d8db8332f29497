// The status server over real connections on the loopback.
#include "http_status.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/clock.h"
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

constexpr char kReady[] = R"({"time":5,"event":"worker_ready","worker_id":3})";
constexpr char kProgress[] =
    R"({"time":5,"event":"progress","step":100,"loss":0.25,)"
    R"("records_per_s":12.5})";

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
              HasSubstr("elasticdl_loss{job_name=\"mnist\"} NaN\n"));
}

TEST(StatusTextTest, MetricsAreInPrometheusFormat) {
  JobStatus status = Example();
  status.job = "a\"b";
  const std::string text = StatusToMetrics(status);
  EXPECT_THAT(text, HasSubstr("# TYPE elasticdl_step gauge\n"
                              "elasticdl_step{job_name=\"a\\\"b\"} 100\n"));
  EXPECT_THAT(text,
              HasSubstr("elasticdl_pods{job_name=\"a\\\"b\",type=\"worker\","
                        "state=\"Running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("metric=\"accuracy\"} 0.9\n"));
}

TEST(StatusTextTest, HistogramsAreCumulative) {
  JobStatus status = Example();
  status.totals.steps.Add(0.0002);
  status.totals.steps.Add(0.003);
  status.totals.steps.Add(1000);
  const std::string text = StatusToMetrics(status);
  EXPECT_THAT(text, HasSubstr("# TYPE elasticdl_step_duration_seconds "
                              "histogram\n"));
  const auto value = [&](const std::string& le) {
    const std::string name = absl::StrCat(
        "elasticdl_step_duration_seconds_bucket{job_name="
        "\"mnist\",le=\"",
        le, "\"} ");
    return text.substr(text.find(name) + name.size(), 1);
  };
  EXPECT_EQ(value("0.0001"), "0");
  EXPECT_EQ(value("0.00025"), "1");
  EXPECT_EQ(value("0.005"), "2");
  EXPECT_EQ(value("+Inf"), "3");
  EXPECT_THAT(text, HasSubstr("_count{job_name=\"mnist\"} 3\n"));
}

TEST(StatusTextTest, UsageIsShownOfPodsThatHaveToldIt) {
  JobStatus status = Example();
  EXPECT_TRUE(Json::parse(StatusToJson(status))["pods"][0]["usage"].is_null());
  status.pods[0].usage = PodUsage();
  status.pods[0].usage->memory_bytes = 5;
  status.pods.push_back({"ps0", 0, "ps", 1, "Running", ""});
  status.pods[1].usage = PodUsage();
  status.pods[1].usage->rows = 9;
  const Json pods = Json::parse(StatusToJson(status))["pods"];
  EXPECT_EQ(pods[0]["usage"]["memory_bytes"], 5);
  EXPECT_EQ(pods[1]["usage"]["rows"], 9);
  EXPECT_FALSE(pods[0]["usage"].contains("rows"));
  EXPECT_THAT(StatusToMetrics(status),
              HasSubstr("elasticdl_server_rows{job_name=\"mnist\","
                        "pod=\"ps0\",type=\"ps\"} 9\n"));
}

TEST(StatusBoardTest, WaitsForNewsOrForThePeriod) {
  StatusBoard board;
  EXPECT_TRUE(board.WaitNews(0, absl::ZeroDuration(), absl::Milliseconds(1)));
  Thread event("event", [&] { board.AddEvent(kReady); });
  EXPECT_TRUE(board.WaitNews(0, absl::ZeroDuration(), absl::Hours(1)));
  event.Join();
  EXPECT_EQ(board.cursor(), 1u);
  // The end is told at once.
  board.AddEvent(R"({"time":7,"event":"job_end","state":"failed"})");
  EXPECT_TRUE(board.WaitNews(1, absl::Hours(1), absl::Hours(1)));
  Thread close("close", [&] { board.Close(); });
  EXPECT_FALSE(board.WaitNews(2, absl::ZeroDuration(), absl::Hours(1)));
}

TEST(StatusBoardTest, WhatIsNewIsToldAfterTheBoardWasClosed) {
  StatusBoard board;
  board.AddEvent(R"({"time":7,"event":"job_end","state":"failed"})");
  board.Close();
  EXPECT_TRUE(board.WaitNews(0, absl::Hours(1), absl::Hours(1)));
  const StatusBoard::Answer answer = board.Update(0, absl::UnixEpoch());
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.cursor, 1u);
  EXPECT_FALSE(board.WaitNews(answer.cursor, absl::Hours(1), absl::Hours(1)));
}

TEST(StatusBoardTest, TheTimeOfAnAnswerIsNotBeforeItsEvents) {
  StatusBoard board;
  board.AddEvent(R"({"time":1000,"event":"worker_ready","worker_id":3})");
  board.AddEvent(R"({"time":500,"event":"worker_ready","worker_id":4})");
  const auto now = [&](int64_t seconds) {
    return Json::parse(board.Update(0, absl::FromUnixSeconds(seconds)).json)
        .at("now")
        .get<double>();
  };
  EXPECT_EQ(now(510), 1010);
  EXPECT_EQ(now(400), 1000);
}

TEST(StatusBoardTest, LinesThatAreNoEventsAreLeftOut) {
  StatusBoard board;
  board.AddEvent("x");
  EXPECT_EQ(board.cursor(), 0u);
}

class HttpStatusTest : public ::testing::Test {
 protected:
  HttpStatusTest() {
    board_.Set(Example());
    board_.AddEvent(kProgress);
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
    commands.log = [](const std::string& pod) -> absl::StatusOr<std::string> {
      if (pod != "master") return absl::NotFoundError("no log");
      return "<b>line</b>\n";
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
  reply = client_->Get("/api/v1/status", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, StatusToJson(Example()));
  reply = client_->Get("/metrics", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, StatusToMetrics(Example()));
  reply = client_->Get("/nothing", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
}

TEST_F(HttpStatusTest, ServesWhatTheModelConsistsOf) {
  EXPECT_EQ(client_->Get("/api/v1/model", auth_)->body, "null");
  board_.AddEvent(
      R"({"time":9,"event":"model","trained":7,"tensors":[{"name":"w"}]})");
  const auto reply = client_->Get("/api/v1/model", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, R"({"trained":7,"tensors":[{"name":"w"}]})");
  EXPECT_EQ(reply->get_header_value("Content-Type"), "application/json");
}

TEST_F(HttpStatusTest, ProbesNeedNoToken) {
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
  EXPECT_EQ(client_->Get("/readyz")->status, 200);
  EXPECT_EQ(client_->Post("/healthz")->status, 401);
  // A job that is being prepared is alive.
  StatusBoard fresh;
  HttpStatus::Options options;
  options.token = "secret";
  const auto server = HttpStatus::Start(options, fresh, {});
  ASSERT_TRUE(server.ok());
  httplib::Client client("http://" + (*server)->address());
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 503);
}

// Probes of a cluster come every 20 s; the third that fails ends the container.
TEST_F(HttpStatusTest, ProbesFailWhenThereWasNoGoodAnswerForLong) {
  const auto fail_after = [this](absl::Duration time) {
    return server_->ProbesFail(Clock::Real().Now() + time);
  };
  EXPECT_FALSE(fail_after(absl::Hours(1))) << "nobody has asked";
  EXPECT_EQ(client_->Get("/readyz")->status, 200);
  EXPECT_FALSE(fail_after(absl::Hours(1))) << "it is not the liveness probe";
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
  EXPECT_FALSE(fail_after(absl::Seconds(25)));
  EXPECT_TRUE(fail_after(absl::Seconds(55)));
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
  EXPECT_FALSE(fail_after(absl::ZeroDuration()));
}

TEST_F(HttpStatusTest, EveryPathNeedsTheToken) {
  const httplib::Headers wrong = {{"Authorization", "Bearer Secret"}};
  for (const char* path :
       {"/", "/api/status", "/api/history", "/api/v1/status", "/api/v1/update",
        "/api/v1/stream", "/api/v1/model", "/api/v1/log?pod=master", "/metrics",
        "/nothing", "/page.html"}) {
    for (const httplib::Headers& headers : {httplib::Headers(), wrong}) {
      const auto reply = client_->Get(path, headers);
      ASSERT_TRUE(reply) << path;
      EXPECT_EQ(reply->status, 401) << path;
    }
  }
  for (const char* path : {"/api/v1/stop", "/api/v1/scale?num_workers=2",
                           "/page.js", "/api/stop", "/api/scale?num_workers=2",
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

TEST_F(HttpStatusTest, FilesOfThePageNeedNoTokenAndAreCached) {
  for (const char* path : {"/page.js", "/page.css"}) {
    auto reply = client_->Get(path);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
    EXPECT_GT(reply->body.size(), 1000u);
    EXPECT_THAT(reply->get_header_value("Content-Type"),
                HasSubstr(absl::StrContains(path, "js") ? "text/javascript"
                                                        : "text/css"));
    EXPECT_EQ(reply->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(reply->get_header_value_count("Cache-Control"), 1u);
    const std::string tag = reply->get_header_value("ETag");
    reply = client_->Get(path, httplib::Headers{{"If-None-Match", tag}});
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 304);
    EXPECT_EQ(reply->body, "");
  }
}

// Thousands of copies of a file would be made in memory, for anybody.
TEST_F(HttpStatusTest, RangesAreIgnored) {
  const auto whole = client_->Get("/page.js");
  ASSERT_TRUE(whole);
  const auto reply =
      client_->Get("/page.js", {{"Range", "bytes=0-,0-,0-,0-,0-,0-,0-"}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, whole->body);
}

// httplib needs much stack for it, and threads have little where ulimit -s is
// "unlimited".
TEST(HttpStatusStackTest, LongRangesDoNotOverflowTheStack) {
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 2 << 20);
  ASSERT_EQ(pthread_setattr_default_np(&small), 0);
  StatusBoard board;
  HttpStatus::Options options;
  options.token = "secret";
  const auto server = HttpStatus::Start(options, board, {});
  ASSERT_TRUE(server.ok());
  pthread_setattr_default_np(&before);
  httplib::Client client("http://" + (*server)->address());
  const auto reply = client.Get(
      "/healthz", {{"Range", "bytes=" + std::string(8000, '1') + "-"}});
  ASSERT_TRUE(reply);
  EXPECT_TRUE(client.Get("/healthz"));
}

// Sends the pieces as fast as they are taken, until the server closes.
int64_t SendUntilClosed(const std::string& address, const std::string& first,
                        const std::string& again) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(parts.at(1))));
  inet_pton(AF_INET, parts.at(0).c_str(), &to.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  int64_t sent = 0;
  const std::string* piece = &first;
  for (;;) {
    const ssize_t n = send(fd, piece->data(), piece->size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += n;
    piece = &again;
  }
  close(fd);
  return sent;
}

TEST_F(HttpStatusTest, EndlessRequestsAreCutOff) {
  const std::string filler(1000, 'x');
  // Without a limit, these would go on until memory is used up.
  EXPECT_GT(SendUntilClosed(server_->address(), "GET /", filler), 0);
  EXPECT_GT(
      SendUntilClosed(server_->address(), "GET / HTTP/1.1\r\n", "a: b\r\n"), 0);
  EXPECT_EQ(client_->Get("/healthz")->status, 200);
}

TEST_F(HttpStatusTest, PolicyAllowsNoInlineScript) {
  const auto reply = client_->Get("/?token=secret");
  ASSERT_TRUE(reply);
  const std::string policy = reply->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'self'"));
  EXPECT_THAT(policy, ::testing::Not(HasSubstr("unsafe")));
}

TEST_F(HttpStatusTest, UpdateHasWhatIsNew) {
  auto reply = client_->Get("/api/v1/update", auth_);
  ASSERT_TRUE(reply);
  Json all = Json::parse(reply->body);
  EXPECT_EQ(all["all"], true);
  EXPECT_EQ(all["points"].size(), 1u);
  // The history has the evaluations.
  Json status = Json::parse(StatusToJson(Example()));
  status.erase("evaluations");
  EXPECT_EQ(all["status"], status);
  board_.AddEvent(kReady);
  reply = client_->Get(
      absl::StrCat("/api/v1/update?since=", all["cursor"].get<uint64_t>()),
      auth_);
  ASSERT_TRUE(reply);
  const Json news = Json::parse(reply->body);
  EXPECT_EQ(news["all"], false);
  EXPECT_EQ(news["points"].size(), 0u);
  EXPECT_EQ(news["spans"].size(), 1u);
  EXPECT_EQ(news["spans"][0]["member"], 3);
  for (const char* bad : {"x", "-1", "1.5", "99999999999999999999999"}) {
    reply = client_->Get(absl::StrCat("/api/v1/update?since=", bad), auth_);
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 400) << bad;
  }
}

TEST_F(HttpStatusTest, LogsAreText) {
  auto reply = client_->Get("/api/v1/log?pod=master", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "<b>line</b>\n");
  EXPECT_THAT(reply->get_header_value("Content-Type"), HasSubstr("text/plain"));
  reply = client_->Get("/api/v1/log?pod=other", auth_);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 404);
}

// Reads messages until there are `count` of them.
std::vector<Json> ReadStream(
    const std::string& address, size_t count,
    const std::function<void()>& on_first = [] {}) {
  httplib::Client client("http://" + address);
  std::vector<Json> messages;
  std::string text;
  client.Get("/api/v1/stream?token=secret", [&](const char* data, size_t size) {
    text.append(data, size);
    for (size_t end = text.find("\n\n"); end != std::string::npos;
         end = text.find("\n\n")) {
      EXPECT_EQ(text.substr(0, 6), "data: ");
      messages.push_back(Json::parse(text.substr(6, end - 6)));
      if (messages.size() == 1) on_first();
      text.erase(0, end + 2);
    }
    return messages.size() < count;
  });
  return messages;
}

TEST_F(HttpStatusTest, StreamTellsWhatHappens) {
  std::vector<Json> messages;
  Thread reader("reader",
                [&] { messages = ReadStream(server_->address(), 2); });
  // The first message is everything; this one comes with it or after it.
  board_.AddEvent(kReady);
  reader.Join();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]["all"], true);
  EXPECT_EQ(messages[1]["all"], false);
  EXPECT_EQ(messages[0]["spans"].size() + messages[1]["spans"].size(), 1u);
}

TEST_F(HttpStatusTest, StreamEndsWithTheBoard) {
  Thread reader("reader", [&] { ReadStream(server_->address(), 1000); });
  board_.AddEvent(kReady);
  board_.Close();
  reader.Join();
  server_->Stop();
}

TEST_F(HttpStatusTest, StreamEndsWithTheJob) {
  board_.AddEvent(R"({"time":7,"event":"job_end","state":"failed"})");
  const std::vector<Json> messages = ReadStream(server_->address(), 1000);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0]["ended"], true);
}

TEST_F(HttpStatusTest, ViewersAreLimited) {
  std::vector<std::unique_ptr<Thread>> readers;
  for (int i = 0; i < 2 * HttpStatus::kMaxViewers; ++i) {
    readers.push_back(std::make_unique<Thread>(
        "reader", [&] { ReadStream(server_->address(), 1000); }));
  }
  // Others are still answered; who is one too many is told so.
  int status = 0;
  while (status != 503) {
    EXPECT_EQ(client_->Get("/api/v1/status", auth_)->status, 200);
    httplib::Client client("http://" + server_->address());
    client.Get(
        "/api/v1/stream", auth_,
        [&](const httplib::Response& response) {
          status = response.status;
          return false;
        },
        [](const char*, size_t) { return false; });
  }
  board_.Close();
  for (auto& reader : readers) reader->Join();
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

TEST_F(HttpStatusTest, EveryStreamTellsTheEnd) {
  std::vector<std::vector<Json>> messages(HttpStatus::kMaxViewers);
  std::atomic<int> there = 0;
  std::vector<std::unique_ptr<Thread>> readers;
  for (auto& mine : messages) {
    readers.push_back(std::make_unique<Thread>("reader", [&] {
      mine = ReadStream(server_->address(), 1000, [&] { ++there; });
    }));
  }
  while (there < HttpStatus::kMaxViewers) {
    EXPECT_TRUE(board_.WaitNews(board_.cursor(), absl::ZeroDuration(),
                                absl::Milliseconds(5)));
  }
  board_.AddEvent(R"({"time":7,"event":"job_end","state":"failed"})");
  server_->ShowEnd();
  board_.Close();
  server_->Stop();
  for (auto& reader : readers) reader->Join();
  for (const auto& mine : messages) EXPECT_EQ(mine.back()["ended"], true);
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
