// Who the transport says it is: tokens, passwords, login programs, and their
// renewal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/kube/cluster_config.h"
#include "kube/test_server.h"
#include "support/temp_dir.h"

namespace elasticdl::kube {
namespace {

using ::elasticdl::test::TempDir;
using test::TestServer;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

std::unique_ptr<Transport> Connect(const ClusterConfig& config) {
  auto transport = MakeTransport(config);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

Request Get(std::vector<std::string> path) {
  Request request;
  request.path = std::move(path);
  return request;
}

// Answers 200 to this one authorization, else 401.
TestServer::Handler Accept(const std::string& authorization) {
  return [=](const httplib::Request& request, httplib::Response& response) {
    const std::string got = request.get_header_value("Authorization");
    response.status = got == authorization ? 200 : 401;
    response.set_content(got, "text/plain");
  };
}

int CodeOf(Transport& transport) {
  const auto response = transport.Call(Get({"x"}), kPatience, nullptr);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? response->code : 0;
}

TEST(TransportLoginTest, TokenAndBasicAuthorization) {
  TestServer server(Accept("Bearer t0k"));
  ClusterConfig config;
  config.server = server.url();
  EXPECT_EQ(CodeOf(*Connect(config)), 401);
  EXPECT_EQ(server.targets().size(), 1u) << "nothing to try again with";
  config.token = "t0k";
  EXPECT_EQ(CodeOf(*Connect(config)), 200);

  TestServer basic(Accept("Basic bWU6YTpi"));
  ClusterConfig user;
  user.server = basic.url();
  user.username = "me";
  user.password = "a:b";
  EXPECT_EQ(CodeOf(*Connect(user)), 200);
}

TEST(TransportLoginTest, RotatedTokenIsReadAgainAfter401) {
  TempDir dir;
  const std::string file = dir.Path("token");
  ASSERT_TRUE(WriteFileAtomic(file, "old\n").ok());
  TestServer server(Accept("Bearer new"));
  ClusterConfig config;
  config.server = server.url();
  config.token_file = file;
  const auto transport = Connect(config);
  // One retry, then the answer is what it is.
  EXPECT_EQ(CodeOf(*transport), 401);
  EXPECT_EQ(server.targets().size(), 2u);
  ASSERT_TRUE(WriteFileAtomic(file, "new\n").ok());
  EXPECT_EQ(CodeOf(*transport), 200);
  EXPECT_EQ(server.targets().size(), 4u);
  EXPECT_EQ(CodeOf(*transport), 200);
  EXPECT_EQ(server.targets().size(), 5u);
  // It works for streams too, and a file that is gone does no harm yet.
  ASSERT_TRUE(RemoveTree(file).ok());
  std::string got;
  const auto response = transport->Stream(Get({"x"}), kPatience, nullptr,
                                          [&](absl::string_view bytes) {
                                            absl::StrAppend(&got, bytes);
                                            return true;
                                          });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(got, "Bearer new");
}

TEST(TransportLoginTest, TokenThatCannotBeReadSaysWhich) {
  TempDir dir;
  TestServer server(Accept(""));
  ClusterConfig config;
  config.server = server.url();
  config.token_file = dir.Path("gone");
  absl::Status status =
      Connect(config)->Call(Get({"x"}), kPatience, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr(config.token_file));
  ASSERT_TRUE(WriteFileAtomic(config.token_file, "a\r\nX-Evil: 1").ok());
  status = Connect(config)->Call(Get({"x"}), kPatience, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(server.targets().size(), 0u);
}

class LoginProgram {
 public:
  // Prints token-1, token-2, …; one line of `runs` per run.
  explicit LoginProgram(const std::string& expires = "") {
    const std::string text = absl::StrCat(
        "#!/bin/sh\necho run >>", runs_, "\nn=$(wc -l <", runs_,
        ")\necho \"{\\\"apiVersion\\\":\\\"client.authentication.k8s.io/v1\\\","
        "\\\"kind\\\":\\\"ExecCredential\\\",\\\"status\\\":{",
        expires.empty() ? ""
                        : absl::StrCat("\\\"expirationTimestamp\\\":\\\"",
                                       expires, "\\\","),
        "\\\"token\\\":\\\"token-$n\\\"}}\"\n");
    EXPECT_TRUE(WriteFileAtomic(dir_.Path("login"), text, 0755).ok());
  }
  ClusterConfig Config(const TestServer& server) const {
    ClusterConfig config;
    config.server = server.url();
    config.exec.api_version = "client.authentication.k8s.io/v1";
    config.exec.command = dir_.Path("login");
    return config;
  }
  int runs() const {
    const auto text = ReadFile(runs_);
    return text.ok()
               ? static_cast<int>(std::count(text->begin(), text->end(), '\n'))
               : 0;
  }

 private:
  TempDir dir_;
  const std::string runs_ = dir_.Path("runs");
};

TEST(TransportLoginTest, LoginProgramRunsOnceAndAgainAfter401) {
  TestServer server(Accept("Bearer token-2"));
  LoginProgram login;
  const auto transport = Connect(login.Config(server));
  EXPECT_EQ(CodeOf(*transport), 200);
  EXPECT_EQ(login.runs(), 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(CodeOf(*transport), 200);
  EXPECT_EQ(login.runs(), 2);
}

TEST(TransportLoginTest, LoginProgramRunsAgainWhenItsCredentialHasExpired) {
  TestServer server([](const httplib::Request&, httplib::Response&) {});
  LoginProgram expired("2001-01-01T00:00:00Z");
  const auto transport = Connect(expired.Config(server));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(CodeOf(*transport), 200);
    EXPECT_EQ(expired.runs(), i);
  }
  LoginProgram fresh("2999-01-01T00:00:00Z");
  const auto other = Connect(fresh.Config(server));
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(CodeOf(*other), 200);
  EXPECT_EQ(fresh.runs(), 1);
}

TEST(TransportLoginTest, ManyCallsWaitForOneLogin) {
  TestServer server(Accept("Bearer token-1"));
  LoginProgram login;
  const auto transport = Connect(login.Config(server));
  std::atomic<int> right{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back(absl::StrCat("call", t), [&] {
        if (CodeOf(*transport) == 200) ++right;
      });
    }
  }
  EXPECT_EQ(right, 8);
  EXPECT_EQ(login.runs(), 1);
}

TEST(TransportLoginTest, FailedLoginIsTheError) {
  TestServer server(Accept(""));
  ClusterConfig config;
  config.server = server.url();
  config.exec.api_version = "client.authentication.k8s.io/v1";
  config.exec.command = "/no/such/login";
  config.exec.install_hint = "get it from the shop";
  const absl::Status status =
      Connect(config)->Call(Get({"x"}), kPatience, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("/no/such/login"), HasSubstr("get it from the shop")));
}

}  // namespace
}  // namespace elasticdl::kube
