// Watch's thread against a real server: lists, streams, resumes, stops.
#include "elasticdl/kube/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/test_server.h"

namespace elasticdl::kube {
namespace {

using ::testing::HasSubstr;
using Kind = WatchEvent::Kind;
using test::Gate;
using test::TestServer;

constexpr absl::Duration kPatience = absl::Seconds(20);

Json Pod(const std::string& name, int version) {
  return {{"metadata",
           {{"name", name},
            {"uid", name},
            {"resourceVersion", absl::StrCat(version)}}}};
}

std::string List(int version, const std::vector<Json>& items) {
  return Json({{"metadata", {{"resourceVersion", absl::StrCat(version)}}},
               {"items", items}})
      .dump();
}

std::string Line(const std::string& type, const Json& object) {
  return Json({{"type", type}, {"object", object}}).dump() + "\n";
}

bool IsWatch(const httplib::Request& request) {
  return request.has_param("watch");
}

// Sends `text`, then waits for `until` and ends: orderly, or by cutting.
void SendThenWait(httplib::Response& response, const std::string& text,
                  Gate* until, bool cut = false) {
  auto sent = std::make_shared<bool>(false);
  response.set_chunked_content_provider(
      "application/json", [=](size_t, httplib::DataSink& sink) {
        if (!*sent) {
          *sent = true;
          return sink.write(text.data(), text.size());
        }
        if (until != nullptr) until->Wait();
        if (cut) return false;
        sink.done();
        return true;
      });
}

class WatchTest : public ::testing::Test {
 protected:
  void Serve(TestServer::Handler handler) {
    server_ = std::make_unique<TestServer>(std::move(handler));
    ClusterConfig config;
    config.server = server_->url();
    transport_ = *MakeTransport(config);
  }
  std::unique_ptr<Watch> Start() {
    Watch::Options options;
    options.resource = Pods();
    options.namespace_name = "ns";
    options.selector = "a=b";
    options.backoff_initial = absl::Milliseconds(1);
    options.backoff_max = absl::Milliseconds(20);
    return std::make_unique<Watch>(
        *transport_, options,
        [this](const WatchEvent& event) { events_.Push(event); });
  }
  // "listed a", …: the next event.
  std::string Next() {
    const auto event = events_.Pop(kPatience);
    if (!event.has_value()) return "nothing";
    const char* words[] = {"listed", "added",   "modified", "deleted",
                           "synced", "trouble", "recovered"};
    const std::string name = TextAt(event->object, "/metadata/name");
    return absl::StrCat(words[static_cast<int>(event->kind)],
                        name.empty() ? "" : " ", name);
  }

  Gate never_;
  Queue<WatchEvent> events_{10000};
  std::unique_ptr<TestServer> server_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(WatchTest, ListsWatchesAndResumesAfterACut) {
  std::atomic<int> watches{0};
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    if (!IsWatch(request)) {
      response.set_content(List(5, {Pod("a", 3)}), "application/json");
    } else if (++watches == 1) {
      const std::string half = Line("ADDED", Pod("c", 8)).substr(0, 15);
      SendThenWait(response, Line("ADDED", Pod("b", 7)) + half, nullptr,
                   /*cut=*/true);
    } else {
      SendThenWait(response, Line("ADDED", Pod("c", 8)), &server_->over());
    }
  });
  const auto watch = Start();
  EXPECT_EQ(Next(), "listed a");
  EXPECT_EQ(Next(), "synced");
  EXPECT_EQ(Next(), "added b");
  EXPECT_EQ(Next(), "added c");
  const std::vector<std::string> targets = server_->targets();
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0], "GET /api/v1/namespaces/ns/pods?labelSelector=a%3Db");
  EXPECT_THAT(targets[1], HasSubstr("resourceVersion=5&"));
  EXPECT_THAT(targets[1], HasSubstr("allowWatchBookmarks=true"));
  EXPECT_THAT(targets[2], HasSubstr("resourceVersion=7&"));
  server_->over().Open();
}

TEST_F(WatchTest, ListsAgainAfter410) {
  std::atomic<int> lists{0};
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    if (!IsWatch(request)) {
      const bool first = ++lists == 1;
      response.set_content(first ? List(5, {Pod("a", 3)}) : List(9, {}),
                           "application/json");
    } else if (lists == 1) {
      response.status = 410;
      response.set_content(R"({"code": 410, "reason": "Expired"})",
                           "application/json");
    } else {
      SendThenWait(response, Line("ADDED", Pod("b", 10)), &server_->over());
    }
  });
  const auto watch = Start();
  for (const char* expected :
       {"listed a", "synced", "deleted a", "synced", "added b"}) {
    EXPECT_EQ(Next(), expected);
  }
  server_->over().Open();
}

TEST_F(WatchTest, TellsTroubleAndRecovery) {
  std::atomic<int> lists{0};
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    if (IsWatch(request)) {
      SendThenWait(response, "", &server_->over());
    } else if (++lists <= 5) {
      response.status = 503;
    } else {
      response.set_content(List(5, {}), "application/json");
    }
  });
  const auto watch = Start();
  EXPECT_EQ(Next(), "trouble");
  EXPECT_EQ(Next(), "recovered");
  EXPECT_EQ(Next(), "synced");
  EXPECT_EQ(lists, 6);
  server_->over().Open();
}

TEST_F(WatchTest, StopEndsAQuietWatchAtOnceAndForGood) {
  Gate watching;
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    if (IsWatch(request)) {
      watching.Open();
      SendThenWait(response, "\n", &server_->over());
    } else {
      response.set_content(List(5, {}), "application/json");
    }
  });
  const auto watch = Start();
  EXPECT_EQ(Next(), "synced");
  ASSERT_TRUE(watching.Wait());
  watch->Stop();
  watch->Stop();
  EXPECT_EQ(events_.size(), 0u);
}

TEST_F(WatchTest, StopEndsAnUnansweredList) {
  Gate asked;
  Serve([&](const httplib::Request&, httplib::Response&) {
    asked.Open();
    server_->over().Wait();
  });
  const auto watch = Start();
  ASSERT_TRUE(asked.Wait());
  watch->Stop();
  EXPECT_EQ(events_.size(), 0u);
}

TEST_F(WatchTest, StopEndsAWaitForTheNextTry) {
  Serve([](const httplib::Request&, httplib::Response& response) {
    response.status = 500;
  });
  Watch::Options options;
  options.resource = Pods();
  options.backoff_initial = absl::Hours(1);
  options.backoff_max = absl::Hours(1);
  Watch watch(*transport_, options,
              [this](const WatchEvent& event) { events_.Push(event); });
  EXPECT_EQ(Next(), "trouble");
  watch.Stop();
}

}  // namespace
}  // namespace elasticdl::kube
