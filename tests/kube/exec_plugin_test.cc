// Login programs: small shell scripts that print what real ones print.
#include "exec_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "support/temp_dir.h"

namespace elasticdl::kube {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr char kV1[] = "client.authentication.k8s.io/v1";
constexpr char kV1Beta1[] = "client.authentication.k8s.io/v1beta1";

class ExecPluginTest : public ::testing::Test {
 protected:
  ClusterConfig Script(const std::string& body) {
    const std::string path = dir_.Path("login");
    EXPECT_TRUE(WriteFileAtomic(path, "#!/bin/sh\n" + body, 0755).ok());
    ClusterConfig config;
    config.server = "https://example:6443";
    config.exec.api_version = kV1;
    config.exec.command = path;
    config.exec.environment = {"PATH=/usr/bin:/bin", "COLOUR=red"};
    return config;
  }
  std::string ErrorOf(const ClusterConfig& config,
                      absl::Duration timeout = kPatience) {
    const auto result = RunExecPlugin(config, timeout, nullptr);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnauthenticated);
    return std::string(result.status().message());
  }

  test::TempDir dir_;
};

TEST_F(ExecPluginTest, TokenWithItsExpiry) {
  const auto result = RunExecPlugin(
      Script("echo hello >&2\n"
             "echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\","
             "\"kind\": \"ExecCredential\", \"status\": {\"token\": \"t0k\","
             "\"expirationTimestamp\": \"2031-02-03T04:05:06Z\"}}'\n"),
      kPatience, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->token, "t0k");
  EXPECT_EQ(result->expires,
            absl::FromCivil(absl::CivilSecond(2031, 2, 3, 4, 5, 6),
                            absl::UTCTimeZone()));
}

TEST_F(ExecPluginTest, ClientCertificateOfTheOldVersion) {
  const auto result = ParseExecCredential(
      kV1Beta1, R"({"apiVersion": "client.authentication.k8s.io/v1beta1",
          "kind": "ExecCredential", "status": {
          "clientCertificateData": "C", "clientKeyData": "K"}})");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->client_cert_pem, "C");
  EXPECT_EQ(result->client_key_pem, "K");
  EXPECT_EQ(result->expires, absl::InfiniteFuture());
}

TEST_F(ExecPluginTest, ArgumentsAndEnvironmentReachIt) {
  ClusterConfig config = Script(absl::StrCat(
      "echo \"{\\\"apiVersion\\\": \\\"", kV1,
      "\\\", \\\"kind\\\": \\\"ExecCredential\\\", \\\"status\\\": "
      "{\\\"token\\\": \\\"$1-$2-$COLOUR-$SHAPE\\\"}}\"\n"));
  config.exec.args = {"a b", "c"};
  config.exec.env = {{"SHAPE", "round"}, {"COLOUR", "green"}};
  const auto result = RunExecPlugin(config, kPatience, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->token, "a b-c-green-round");
}

TEST_F(ExecPluginTest, ClusterInfoIsGivenWhenAskedFor) {
  ClusterConfig config = Script("");
  config.ca_pem = "pem";
  EXPECT_THAT(ExecInfo(config), Not(HasSubstr("cluster")));
  config.exec.provide_cluster_info = true;
  EXPECT_THAT(ExecInfo(config),
              AllOf(HasSubstr("\"server\":\"https://example:6443\""),
                    HasSubstr("\"certificate-authority-data\":\"cGVt\""),
                    HasSubstr("\"interactive\":false")));
  const std::string file = dir_.Path("info");
  config.exec.command =
      Script(absl::StrCat("printf %s \"$KUBERNETES_EXEC_INFO\" >", file))
          .exec.command;
  ErrorOf(config);
  EXPECT_EQ(*ReadFile(file), ExecInfo(config));
}

TEST_F(ExecPluginTest, FailureShowsStandardError) {
  EXPECT_THAT(
      ErrorOf(Script("echo token-on-stdout; echo please log in >&2; "
                     "exit 3")),
      AllOf(HasSubstr("exit code 3"), HasSubstr("please log in"),
            HasSubstr(dir_.Path("login")), Not(HasSubstr("token-on-stdout"))));
  EXPECT_THAT(ErrorOf(Script("kill -9 $$")), HasSubstr("signal 9"));
}

TEST_F(ExecPluginTest, MissingCommandShowsTheHint) {
  ClusterConfig config = Script("");
  config.exec.command = "no-such-login-program";
  config.exec.install_hint = "Install it with: apt-get install x\n";
  EXPECT_THAT(ErrorOf(config),
              AllOf(HasSubstr("no-such-login-program"),
                    HasSubstr("Install it with: apt-get install x")));
}

TEST_F(ExecPluginTest, NonsenseIsNamedWithoutBeingQuoted) {
  const std::string head =
      R"({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", )";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no ExecCredential"},
      {"secret", "no ExecCredential"},
      {"[\"secret\"]", "no ExecCredential"},
      {R"({"kind": "Pod"})", "no ExecCredential"},
      {R"({"kind": "ExecCredential", "apiVersion": "x/v9"})", "x/v9"},
      {head + "\"status\": {}}", "neither a token"},
      {head + "\"status\": {\"token\": 7}}", "neither a token"},
      {head + "\"status\": {\"clientKeyData\": \"secret\"}}", "only one"},
      {head + "\"status\": {\"token\": \"secret\", "
              "\"expirationTimestamp\": \"soon\"}}",
       "soon"},
  };
  for (const auto& [text, why] : cases) {
    const auto result = ParseExecCredential(kV1, text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr(why), Not(HasSubstr("secret"))))
        << text;
  }
}

TEST_F(ExecPluginTest, OneThatHangsIsKilled) {
  // The child of the script hangs too and goes with it.
  EXPECT_THAT(ErrorOf(Script("echo waiting for you >&2\n"
                             "cat /dev/zero >/dev/null & wait\n"),
                      absl::Milliseconds(300)),
              AllOf(HasSubstr("no answer within 300ms")));
}

TEST_F(ExecPluginTest, CancellationEndsIt) {
  const std::string fifo = dir_.Path("up");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Cancellation cancel;
  absl::Status status;
  const ClusterConfig config = Script(
      absl::StrCat("echo up >", fifo, "\ncat /dev/zero >/dev/null & wait\n"));
  Thread thread("plugin", [&] {
    status = RunExecPlugin(config, absl::Hours(1), &cancel).status();
  });
  EXPECT_EQ(*ReadFile(fifo), "up\n");
  cancel.Cancel();
  thread.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace elasticdl::kube
