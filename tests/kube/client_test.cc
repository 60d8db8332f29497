// Client and ToStatus: what is asked, and what answers mean.
#include "elasticdl/kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/test_server.h"

namespace elasticdl::kube {
namespace {

using test::TestServer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status StatusOf(int code, const std::string& body) {
  Request request;
  request.method = "POST";
  request.path = {"api", "v1", "namespaces", "team", "pods"};
  request.query = {{"long", "query"}};
  return ToStatus(request, {code, body});
}

TEST(ToStatusTest, CodesAndReasons) {
  const std::string exists =
      R"({"kind":"Status","reason":"AlreadyExists","message":"pods \"a\" already exists"})";
  EXPECT_EQ(StatusOf(409, exists).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(StatusOf(409, R"({"reason":"Conflict"})").code(),
            absl::StatusCode::kAborted);
  const std::pair<int, absl::StatusCode> codes[] = {
      {200, absl::StatusCode::kOk},
      {201, absl::StatusCode::kOk},
      {202, absl::StatusCode::kOk},
      {302, absl::StatusCode::kUnknown},
      {400, absl::StatusCode::kInvalidArgument},
      {401, absl::StatusCode::kUnauthenticated},
      {403, absl::StatusCode::kPermissionDenied},
      {404, absl::StatusCode::kNotFound},
      {405, absl::StatusCode::kUnimplemented},
      {410, absl::StatusCode::kOutOfRange},
      {422, absl::StatusCode::kInvalidArgument},
      {429, absl::StatusCode::kUnavailable},
      {500, absl::StatusCode::kUnavailable},
      {503, absl::StatusCode::kUnavailable},
      {504, absl::StatusCode::kUnavailable},
  };
  for (const auto& [http, expected] : codes) {
    EXPECT_EQ(StatusOf(http, "").code(), expected) << http;
  }
}

TEST(ToStatusTest, MessagesAreTheServersWithWhatWasAsked) {
  const std::string forbidden =
      R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
      "message":"pods is forbidden: User \"system:serviceaccount:team:default\" cannot create resource \"pods\" in API group \"\" in the namespace \"team\"",
      "reason":"Forbidden","details":{"kind":"pods"},"code":403})";
  const absl::Status denied = StatusOf(403, forbidden);
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(denied.message()),
              AllOf(HasSubstr("cannot create resource \"pods\""),
                    HasSubstr("in the namespace \"team\""),
                    HasSubstr("POST /api/v1/namespaces/team/pods: HTTP 403 "
                              "Forbidden")));
  const std::string quota =
      R"({"message":"pods \"a\" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=2, limited: cpu=2","reason":"Forbidden","code":403})";
  EXPECT_EQ(StatusOf(403, quota).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(StatusOf(502, "<html>bad gateway").message()),
              HasSubstr("<html>bad gateway"));
  EXPECT_THAT(std::string(StatusOf(500, "").message()),
              HasSubstr("no message"));
  EXPECT_THAT(std::string(StatusOf(500, "{\"message\": 7}").message()),
              HasSubstr("HTTP 500"));
}

TEST(ResourceTest, OfObjects) {
  const auto role = ResourceOf(
      {{"apiVersion", "rbac.authorization.k8s.io/v1"}, {"kind", "Role"}});
  ASSERT_TRUE(role.ok()) << role.status();
  EXPECT_EQ(role->group, "rbac.authorization.k8s.io");
  EXPECT_EQ(role->version, "v1");
  EXPECT_EQ(role->plural, "roles");
  EXPECT_TRUE(role->namespaced);
  EXPECT_FALSE(ResourceOf({{"apiVersion", "scheduling.k8s.io/v1"},
                           {"kind", "PriorityClass"}})
                   ->namespaced);
  for (const Json& bad :
       {Json({{"apiVersion", "v1"}, {"kind", "Deployment"}}),
        Json({{"apiVersion", "v1"}, {"kind", "Role"}}), Json("text"),
        Json({{"kind", "Pod"}}), Json({{"apiVersion", 1}, {"kind", 2}})}) {
    EXPECT_EQ(ResourceOf(bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(FieldTest, GuardsTypes) {
  const Json object = {{"a", {{"b", "text"}, {"n", 7}, {"l", {1, 2}}}}};
  EXPECT_EQ(TextAt(object, "/a/b"), "text");
  const Json escaped = {{"a/b~c", "text"}};
  EXPECT_EQ(TextAt(escaped, "/a~1b~0c"), "text");
  EXPECT_EQ(TextAt(object, "/a/n", "none"), "none");
  EXPECT_EQ(TextAt(object, "/a/b/c", "none"), "none");
  EXPECT_EQ(TextAt(Json(), "/a", "none"), "none");
  EXPECT_EQ(NumberAt(object, "/a/n"), 7);
  EXPECT_EQ(NumberAt(object, "/a/b", -1), -1);
  EXPECT_EQ(ListAt(object, "/a/l").size(), 2u);
  EXPECT_EQ(ListAt(object, "/a/b").size(), 0u);
}

class ClientTest : public ::testing::Test {
 protected:
  void Serve(TestServer::Handler handler) {
    server_ = std::make_unique<TestServer>(std::move(handler));
    ClusterConfig config;
    config.server = server_->url();
    Client::Options options;
    options.namespace_name = "team";
    client_ = std::make_unique<Client>(*MakeTransport(config), options);
  }
  static void Echo(const httplib::Request& request,
                   httplib::Response& response) {
    response.set_content(
        Json({{"body", request.body},
              {"type", request.get_header_value("Content-Type")}})
            .dump(),
        "application/json");
  }

  std::unique_ptr<TestServer> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, VerbsAndPaths) {
  Serve(Echo);
  const Resource classes = {"scheduling.k8s.io", "v1", "priorityclasses",
                            false};
  const Json pod = {{"metadata", {{"name", "p"}}}};
  EXPECT_TRUE(client_->Create(Pods(), pod).ok());
  EXPECT_TRUE(
      client_->Create(Pods(), {{"metadata", {{"namespace", "else"}}}}).ok());
  EXPECT_TRUE(client_->Get(Secrets(), "s").ok());
  EXPECT_TRUE(client_->List(Services(), "").ok());
  EXPECT_TRUE(client_->List(classes, "a=b").ok());
  EXPECT_TRUE(client_->Replace(Pods(), "p", pod).ok());
  const auto patched = client_->Patch(Pods(), "p", {{"a", 1}});
  ASSERT_TRUE(patched.ok());
  EXPECT_EQ(TextAt(*patched, "/type"), "application/merge-patch+json");
  EXPECT_EQ(TextAt(*patched, "/body"), "{\"a\":1}");
  EXPECT_TRUE(client_->Delete(Pods(), "p", absl::Milliseconds(1500)).ok());
  EXPECT_TRUE(
      client_->Proxy({"p", 8080, "GET", {"api", "x"}, {{"q", "1"}}}).ok());
  const std::string base = "/api/v1/namespaces/team/";
  EXPECT_THAT(
      server_->targets(),
      ElementsAre("POST " + base + "pods", "POST /api/v1/namespaces/else/pods",
                  "GET " + base + "secrets/s", "GET " + base + "services",
                  "GET /apis/scheduling.k8s.io/v1/"
                  "priorityclasses?labelSelector=a%3Db",
                  "PUT " + base + "pods/p", "PATCH " + base + "pods/p",
                  "DELETE " + base + "pods/p",
                  "GET " + base + "pods/p%3A8080/proxy/api/x?q=1"));
}

TEST_F(ClientTest, DeleteSaysHow) {
  std::vector<std::string> bodies;
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    bodies.push_back(request.body);
    response.set_content("{}", "application/json");
  });
  EXPECT_TRUE(client_->Delete(Pods(), "p").ok());
  EXPECT_TRUE(client_->Delete(Pods(), "p", absl::ZeroDuration()).ok());
  EXPECT_TRUE(client_->Delete(Pods(), "p", absl::Milliseconds(1500)).ok());
  const Json plain = Json::parse(bodies[0], nullptr, false);
  EXPECT_EQ(TextAt(plain, "/propagationPolicy"), "Background");
  EXPECT_FALSE(plain.contains("gracePeriodSeconds"));
  EXPECT_EQ(NumberAt(Json::parse(bodies[1]), "/gracePeriodSeconds", -1), 0);
  EXPECT_EQ(NumberAt(Json::parse(bodies[2]), "/gracePeriodSeconds", -1), 2);
}

TEST_F(ClientTest, ApplyReplacesWhatIsThere) {
  int puts = 0;
  Json last;
  Serve([&](const httplib::Request& request, httplib::Response& response) {
    response.set_content("{}", "application/json");
    if (request.method == "POST") {
      response.status = 409;
      response.set_content(R"({"reason":"AlreadyExists"})", "application/json");
    } else if (request.method == "GET") {
      response.set_content(
          R"({"metadata":{"resourceVersion":"7"},"spec":{"clusterIP":"10.1.1.1"}})",
          "application/json");
    } else {
      last = Json::parse(request.body, nullptr, false);
      // Somebody was faster once.
      if (++puts == 1) response.status = 409;
    }
  });
  const Json service = {{"kind", "Service"},
                        {"metadata", {{"name", "s"}}},
                        {"spec", {{"ports", Json::array()}}}};
  EXPECT_TRUE(client_->Apply(Services(), service).ok());
  EXPECT_EQ(puts, 2);
  EXPECT_EQ(TextAt(last, "/metadata/resourceVersion"), "7");
  EXPECT_EQ(TextAt(last, "/spec/clusterIP"), "10.1.1.1");
}

TEST_F(ClientTest, LogsComePieceByPiece) {
  Serve([](const httplib::Request& request, httplib::Response& response) {
    if (request.path == "/api/v1/namespaces/team/pods/gone/log") {
      response.status = 404;
      response.set_content(R"({"message":"pods \"gone\" not found"})",
                           "application/json");
      return;
    }
    response.set_content("line 1\nline 2\n", "text/plain");
  });
  std::string got;
  const auto sink = [&](absl::string_view bytes) {
    absl::StrAppend(&got, bytes);
    return true;
  };
  Client::LogOptions options;
  options.container = "worker";
  options.follow = true;
  options.tail_lines = 10;
  EXPECT_TRUE(client_->Logs("p", options, nullptr, sink).ok());
  EXPECT_EQ(got, "line 1\nline 2\n");
  EXPECT_THAT(server_->targets(),
              ElementsAre("GET /api/v1/namespaces/team/pods/p/log?container="
                          "worker&follow=true&tailLines=10"));
  const absl::Status gone = client_->Logs("gone", {}, nullptr, sink);
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()),
              HasSubstr("pods \"gone\" not found"));
}

TEST_F(ClientTest, ProxyTellsThePodsAnswerFromTheServers) {
  bool from_pod = true;
  Serve([&](const httplib::Request&, httplib::Response& response) {
    response.status = 404;
    response.set_content(
        from_pod ? "no such page"
                 : R"({"kind":"Status","message":"pods \"p\" not found"})",
        "application/json");
  });
  const auto answer = client_->Proxy({"p", 80, "GET", {}, {}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, 404);
  from_pod = false;
  EXPECT_EQ(client_->Proxy({"p", 80, "GET", {}, {}}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ClientTest, ProxyToAPortWhereNobodyListens) {
  Serve([](const httplib::Request&, httplib::Response& response) {
    response.status = 503;
    response.set_content(
        "Error trying to reach service: 'dial tcp 10.0.0.7:80: connect: "
        "connection refused'",
        "text/plain");
  });
  EXPECT_EQ(client_->Proxy({"p", 80, "GET", {}, {}}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, AnswersThatAreNoObjectsAreErrors) {
  Serve([](const httplib::Request&, httplib::Response& response) {
    response.set_content("<html>", "text/html");
  });
  EXPECT_EQ(client_->Get(Pods(), "p").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ClientTest, CancelCallsEndsThemAll) {
  Serve(Echo);
  client_->CancelCalls();
  EXPECT_EQ(client_->Get(Pods(), "p").status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace elasticdl::kube
