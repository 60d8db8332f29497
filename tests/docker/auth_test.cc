// Credentials from config.json and from helper programs.
#include "auth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "credential_helper.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::docker {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class AuthTest : public ::testing::Test {
 protected:
  void Config(const json& config) {
    ASSERT_TRUE(WriteFileAtomic(dir_.Path("config.json"), config.dump()).ok());
  }
  // A program docker-credential-<name> that runs `body`.
  void Helper(const std::string& name, const std::string& body) {
    ASSERT_TRUE(WriteFileAtomic(dir_.Path("docker-credential-" + name),
                                absl::StrCat("#!/bin/sh\n", body, "\n"), 0755)
                    .ok());
  }
  std::string Path() const { return dir_.path() + ":/usr/bin:/bin"; }
  static json Decoded(const std::string& header) {
    std::string text;
    EXPECT_TRUE(absl::WebSafeBase64Unescape(header, &text));
    return json::parse(text);
  }
  json Push(const std::string& registry) {
    const absl::StatusOr<RegistryAuth> auth =
        RegistryAuth::Read(dir_.path(), Path());
    EXPECT_TRUE(auth.ok()) << auth.status();
    const absl::StatusOr<std::string> header = auth->PushHeader(registry);
    EXPECT_TRUE(header.ok()) << header.status();
    return header.ok() ? Decoded(*header) : json();
  }

  const test::TempDir dir_;
};

TEST_F(AuthTest, NoConfigurationIsNoCredentials) {
  EXPECT_EQ(Push("gcr.io"), json::object());
  const RegistryAuth auth = RegistryAuth::Read(dir_.path(), Path()).value();
  EXPECT_EQ(Decoded(auth.BuildHeader()), json::object());
}

TEST_F(AuthTest, AuthsByHost) {
  Config({{"auths",
           {{"https://index.docker.io/v1/",
             {{"auth", absl::Base64Escape("hub:pw")}}},
            {"https://reg.example.com:5000/v2/",
             {{"username", "u"}, {"password", "p"}}},
            {"gcr.io",
             {{"auth", absl::Base64Escape("x:y")}, {"identitytoken", "tok"}}},
            {"https://index.docker.io/v1/refresh-token",
             {{"auth", absl::Base64Escape("hub:secret")}}},
            {"broken.io", {{"auth", 7}}}}}});
  EXPECT_EQ(Push("docker.io"),
            json({{"username", "hub"},
                  {"password", "pw"},
                  {"serveraddress", "https://index.docker.io/v1/"}}));
  EXPECT_EQ(Push("reg.example.com:5000"),
            json({{"username", "u"},
                  {"password", "p"},
                  {"serveraddress", "reg.example.com:5000"}}));
  EXPECT_EQ(Push("gcr.io"),
            json({{"identitytoken", "tok"}, {"serveraddress", "gcr.io"}}));
  EXPECT_EQ(Push("broken.io"), json::object());
  EXPECT_EQ(Push("reg.example.com"), json::object());
  const RegistryAuth auth = RegistryAuth::Read(dir_.path(), Path()).value();
  const json all = Decoded(auth.BuildHeader());
  EXPECT_EQ(all.size(), 3u);
  EXPECT_THAT(
      auth.Servers(),
      testing::ElementsAre("broken.io", "gcr.io", "https://index.docker.io/v1/",
                           "https://reg.example.com:5000/v2/"));
  EXPECT_EQ(all["https://index.docker.io/v1/"]["username"], "hub");
}

TEST_F(AuthTest, HelpersAreAsked) {
  Config({{"auths", {{"other.io", json::object()}}},
          {"credsStore", "store"},
          {"credHelpers", {{"gcr.io", "cloud"}}}});
  Helper("store",
         "read server; [ \"$1\" = get ] || exit 9; echo "
         "\"{\\\"ServerURL\\\":\\\"$server\\\",\\\"Username\\\":\\\"s\\\","
         "\\\"Secret\\\":\\\"for $server\\\"}\"");
  Helper("cloud",
         "cat > /dev/null; echo '{\"Username\":\"<token>\","
         "\"Secret\":\"t\"}'");
  EXPECT_EQ(Push("other.io")["password"], "for other.io");
  EXPECT_EQ(Push("docker.io")["password"], "for https://index.docker.io/v1/");
  EXPECT_EQ(Push("gcr.io")["identitytoken"], "t");
  const RegistryAuth auth = RegistryAuth::Read(dir_.path(), Path()).value();
  EXPECT_EQ(Decoded(auth.BuildHeader()).size(), 2u);
}

TEST_F(AuthTest, HelperThatKnowsNothing) {
  Config({{"credsStore", "store"}});
  Helper("store", "echo credentials not found in native keychain; exit 1");
  EXPECT_EQ(Push("gcr.io"), json::object());
}

TEST_F(AuthTest, HelperThatFailsIsNamed) {
  Config({{"credsStore", "store"}});
  const RegistryAuth auth = RegistryAuth::Read(dir_.path(), Path()).value();
  absl::Status status = auth.PushHeader("gcr.io").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("docker-credential-store"));
  Helper("store", "echo locked; exit 1");
  status = auth.PushHeader("gcr.io").status();
  EXPECT_EQ(status.message(), "docker-credential-store get gcr.io: locked");
  // Not valid and maybe secret: it is not shown.
  Helper("store", "echo s3cret");
  status = auth.PushHeader("gcr.io").status();
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  Helper("store", "exit 0");
  EXPECT_FALSE(auth.PushHeader("gcr.io").ok());
  // A failing store spoils no build.
  EXPECT_EQ(Decoded(auth.BuildHeader()), json::object());
}

TEST_F(AuthTest, HelperThatHangsIsEnded) {
  Helper("slow", "exec tail -f /dev/null");
  const absl::Status status =
      AskCredentialHelper("slow", "gcr.io", Path(), absl::Milliseconds(50))
          .status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(
      AskCredentialHelper("../x", "gcr.io", Path(), absl::Seconds(1)).ok());
}

TEST_F(AuthTest, BrokenConfiguration) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("config.json"), "[]").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      RegistryAuth::Read(dir_.path(), Path()).status()));
  Config({{"auths", 3}, {"credHelpers", "x"}, {"credsStore", {1}}});
  EXPECT_EQ(Push("gcr.io"), json::object());
}

}  // namespace
}  // namespace elasticdl::docker
