// The client against a real cluster: see real_cluster.h for which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/watch.h"
#include "kube/real_cluster.h"

namespace elasticdl::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = WatchEvent::Kind;

// Deleting a pod takes seconds, pulling an image may take a minute.
constexpr absl::Duration kPatience = absl::Seconds(120);

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cluster_ = test::RealCluster::Find(why);
    if (cluster_ == nullptr) GTEST_SKIP() << "no cluster: " << why;
    Watch::Options options;
    options.resource = Pods();
    options.namespace_name = cluster_->namespace_name();
    options.selector = "of=test";
    watch_ = std::make_unique<Watch>(
        client().transport(), options,
        [this](const WatchEvent& event) { events_.Push(event); });
  }
  Client& client() { return cluster_->client(); }

  // A pod that runs `script`; never scheduled without an image.
  Json Pod(const std::string& name, const std::string& script) const {
    return {
        {"apiVersion", "v1"},
        {"kind", "Pod"},
        {"metadata", {{"name", name}, {"labels", {{"of", "test"}}}}},
        {"spec",
         {{"restartPolicy", "Never"},
          {"terminationGracePeriodSeconds", 1},
          {"automountServiceAccountToken", false},
          {"containers",
           {{{"name", "main"},
             {"image", cluster_->image().empty() ? "none" : cluster_->image()},
             {"command", {"sh", "-c", script}}}}}}}};
  }
  // The next event of which `wanted` holds.
  std::optional<WatchEvent> Next(
      const std::function<bool(const WatchEvent&)>& wanted) {
    while (auto event = events_.Pop(kPatience)) {
      if (wanted(*event)) return event;
    }
    return std::nullopt;
  }
  bool NextPhase(const std::string& phase) {
    return Next([&](const WatchEvent& event) {
             return TextAt(event.object, "/status/phase") == phase;
           })
        .has_value();
  }

  std::unique_ptr<test::RealCluster> cluster_;
  Queue<WatchEvent> events_{10000};
  std::unique_ptr<Watch> watch_;
};

TEST_F(ClusterTest, PodFromCreationToDeletion) {
  ASSERT_TRUE(Next([](const WatchEvent& event) {
                return event.kind == Kind::kSynced;
              }).has_value());
  Json pod = Pod("a", "exit 0");
  // Nothing runs it: the test needs no image.
  pod["spec"]["nodeSelector"] = {{"elasticdl/no-such-node", "true"}};
  const auto created = client().Create(Pods(), pod);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(Next([](const WatchEvent& event) {
                return event.kind == Kind::kAdded;
              }).has_value());
  const absl::Status again = client().Create(Pods(), pod).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists) << again;

  const auto patched = client().Patch(
      Pods(), "a", {{"metadata", {{"labels", {{"more", "1"}}}}}});
  ASSERT_TRUE(patched.ok()) << patched.status();
  EXPECT_EQ(TextAt(*patched, "/metadata/labels/more"), "1");
  EXPECT_EQ(TextAt(*patched, "/metadata/labels/of"), "test");
  EXPECT_TRUE(Next([](const WatchEvent& event) {
                return event.kind == Kind::kModified &&
                       TextAt(event.object, "/metadata/labels/more") == "1";
              }).has_value());

  EXPECT_EQ(
      ListAt(*client().List(Pods(), "of=test,more in (1,2)"), "/items").size(),
      1u);
  EXPECT_EQ(ListAt(*client().List(Pods(), "of=nobody"), "/items").size(), 0u);

  ASSERT_TRUE(client().Delete(Pods(), "a", absl::ZeroDuration()).ok());
  EXPECT_TRUE(Next([](const WatchEvent& event) {
                return event.kind == Kind::kDeleted;
              }).has_value());
  EXPECT_EQ(client().Get(Pods(), "a").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(client().Delete(Pods(), "a").code(), absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, RefusalsSayWhatIsWrong) {
  Json bad = Pod("Bad_Name", "exit 0");
  const absl::Status invalid = client().Create(Pods(), bad).status();
  EXPECT_EQ(invalid.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(invalid.message()), HasSubstr("metadata.name"));
  bad = Pod("a", "exit 0");
  bad["metadata"]["namespace"] = "elasticdl-no-such-namespace";
  EXPECT_EQ(client().Create(Pods(), bad).status().code(),
            absl::StatusCode::kNotFound);
  const Resource quotas = {"", "v1", "resourcequotas", true};
  ASSERT_TRUE(client()
                  .Create(quotas, {{"apiVersion", "v1"},
                                   {"kind", "ResourceQuota"},
                                   {"metadata", {{"name", "none"}}},
                                   {"spec", {{"hard", {{"pods", "0"}}}}}})
                  .ok());
  // The controller counts first; until then there is no quota.
  Queue<int> counted(10);
  Watch::Options options;
  options.resource = quotas;
  options.namespace_name = cluster_->namespace_name();
  {
    const Watch watch(client().transport(), options,
                      [&](const WatchEvent& event) {
                        if (TextAt(event.object, "/status/hard/pods") == "0") {
                          counted.Push(1);
                        }
                      });
    ASSERT_TRUE(counted.Pop(kPatience).has_value());
  }
  const absl::Status quota =
      client().Create(Pods(), Pod("a", "exit 0")).status();
  EXPECT_EQ(quota.code(), absl::StatusCode::kResourceExhausted) << quota;
  EXPECT_THAT(std::string(quota.message()), HasSubstr("exceeded quota: none"));
}

TEST_F(ClusterTest, MissingRightsAreNamed) {
  // The token of an account without any right.
  Request ask;
  ask.method = "POST";
  ask.path = {"api",
              "v1",
              "namespaces",
              cluster_->namespace_name(),
              "serviceaccounts",
              "default",
              "token"};
  ask.body =
      R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}})";
  const auto answer = client().transport().Call(ask, kPatience, nullptr);
  ASSERT_TRUE(answer.ok() && ToStatus(ask, *answer).ok()) << answer->body;
  ClusterConfig config = cluster_->config();
  config.client_cert_pem.clear();
  config.client_key_pem.clear();
  config.exec = ExecPlugin();
  config.token =
      TextAt(Json::parse(answer->body, nullptr, false), "/status/token");
  Client::Options options;
  options.namespace_name = cluster_->namespace_name();
  Client nobody(*MakeTransport(config), options);
  const absl::Status denied = nobody.List(Pods(), "").status();
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.message()),
              AllOf(HasSubstr("cannot list resource \"pods\""),
                    HasSubstr(absl::StrCat("in the namespace \"",
                                           cluster_->namespace_name(), "\""))));
  config.token = "not-a-token";
  Client stranger(*MakeTransport(config), options);
  EXPECT_EQ(stranger.List(Pods(), "").status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST_F(ClusterTest, ApplyKeepsTheAddressOfAService) {
  Json service = {{"apiVersion", "v1"},
                  {"kind", "Service"},
                  {"metadata", {{"name", "s"}}},
                  {"spec", {{"ports", {{{"name", "rpc"}, {"port", 50001}}}}}}};
  const auto first = client().Apply(Services(), service);
  ASSERT_TRUE(first.ok()) << first.status();
  service["spec"]["ports"][0]["port"] = 50002;
  const auto second = client().Apply(Services(), service);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(TextAt(*first, "/spec/clusterIP"), "");
  EXPECT_EQ(TextAt(*first, "/spec/clusterIP"),
            TextAt(*second, "/spec/clusterIP"));
  EXPECT_EQ(NumberAt(ListAt(*second, "/spec/ports")[0], "/port"), 50002);
}

// Connections are cut in the middle of a watch, and the server cannot be
// reached for a while, in which pods come, change and go.
TEST_F(ClusterTest, WatchSurvivesTheLossOfTheServer) {
  const auto relay = cluster_->NewRelay();
  const auto client = cluster_->NewClient(*relay);
  Queue<std::string> seen(1000);
  Watch::Options options;
  options.resource = Pods();
  options.namespace_name = cluster_->namespace_name();
  const Watch watch(client->transport(), options, [&](const WatchEvent& event) {
    const std::string name = TextAt(event.object, "/metadata/name");
    switch (event.kind) {
      case Kind::kDeleted:
        seen.Push("deleted " + name);
        break;
      case Kind::kSynced:
        seen.Push("synced");
        break;
      case Kind::kTrouble:
        seen.Push("trouble");
        break;
      case Kind::kListed:
      case Kind::kAdded:
        seen.Push("there is " + name);
        break;
      default:
        break;
    }
  });
  const auto expect = [&](const std::string& wanted) {
    while (auto word = seen.Pop(kPatience)) {
      if (*word == wanted) return true;
    }
    ADD_FAILURE() << "never came: " << wanted;
    return false;
  };
  const auto create = [&](const std::string& name) {
    Json pod = Pod(name, "exit 0");
    pod["spec"]["nodeSelector"] = {{"elasticdl/no-such-node", "true"}};
    EXPECT_TRUE(this->client().Create(Pods(), pod).ok());
  };
  const auto remove = [&](const std::string& name) {
    EXPECT_TRUE(this->client().Delete(Pods(), name, absl::ZeroDuration()).ok());
  };
  ASSERT_TRUE(expect("synced"));
  create("a");
  ASSERT_TRUE(expect("there is a"));
  // A short cut: the watch goes on where it was.
  relay->Cut();
  create("b");
  relay->Mend();
  ASSERT_TRUE(expect("there is b"));
  // A long one.
  relay->Cut();
  ASSERT_TRUE(expect("trouble"));
  remove("a");
  create("c");
  remove("c");
  create("d");
  relay->Mend();
  ASSERT_TRUE(expect("deleted a"));
  ASSERT_TRUE(expect("there is d"));
  remove("b");
  ASSERT_TRUE(expect("deleted b"));
}

TEST_F(ClusterTest, LogsOfAPod) {
  if (cluster_->image().empty()) GTEST_SKIP() << "no ELASTICDL_TEST_IMAGE";
  ASSERT_TRUE(
      client().Create(Pods(), Pod("a", "echo one; sleep 1; echo two")).ok());
  ASSERT_TRUE(NextPhase("Running"));
  Client::LogOptions options;
  options.follow = true;
  std::string log;
  const auto sink = [&](absl::string_view bytes) {
    absl::StrAppend(&log, bytes);
    return true;
  };
  // Follows until the container has ended.
  const absl::Status status = client().Logs("a", options, nullptr, sink);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(log, AllOf(HasSubstr("one\n"), HasSubstr("two\n")));
  ASSERT_TRUE(NextPhase("Succeeded"));
  log.clear();
  Client::LogOptions tail;
  tail.tail_lines = 1;
  EXPECT_TRUE(client().Logs("a", tail, nullptr, sink).ok());
  EXPECT_EQ(log, "two\n");
  EXPECT_EQ(client().Logs("none", tail, nullptr, sink).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, ProxyReachesThePortOfAPod) {
  if (cluster_->image().empty()) GTEST_SKIP() << "no ELASTICDL_TEST_IMAGE";
  // Says what was asked, to whoever asks.
  constexpr char kServer[] =
      R"(exec perl -MIO::Socket::INET -e '
        $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5,
                                   ReuseAddr => 1) or die;
        $| = 1; print "up\n";
        while ($c = $s->accept) {
          $line = <$c>; $line =~ s/\r?\n//;
          while (<$c>) { last if /^\r?\n$/ }
          print $c "HTTP/1.1 203 OK\r\nContent-Length: ", length($line),
                   "\r\nConnection: close\r\n\r\n$line";
          close $c;
        }')";
  ASSERT_TRUE(client().Create(Pods(), Pod("a", kServer)).ok());
  ASSERT_TRUE(NextPhase("Running"));
  Client::LogOptions options;
  options.follow = true;
  std::string log;
  client()
      .Logs("a", options, nullptr,
            [&](absl::string_view bytes) {
              absl::StrAppend(&log, bytes);
              return log != "up\n";
            })
      .IgnoreError();
  const auto answer =
      client().Proxy({"a", 8080, "GET", {"api", "x y"}, {{"q", "1 2"}}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 203);
  EXPECT_THAT(answer->body, HasSubstr("GET /api/x%20y?q=1"));
  EXPECT_EQ(client().Proxy({"none", 8080, "GET", {}, {}}).status().code(),
            absl::StatusCode::kNotFound);
  // Nobody listens there.
  const auto nobody = client().Proxy({"a", 8081, "GET", {}, {}});
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kUnavailable)
      << nobody->code << " " << nobody->body;
}

}  // namespace
}  // namespace elasticdl::kube
