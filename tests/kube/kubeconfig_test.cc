// kubeconfig files and pods' own accounts, as people have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/kube/cluster_config.h"
#include "support/temp_dir.h"

namespace elasticdl::kube {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class KubeconfigTest : public ::testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }
  absl::StatusOr<ClusterConfig> Load(const std::string& kubeconfig,
                                     const std::string& context = "") {
    ConfigSource source;
    source.kubeconfig = kubeconfig;
    source.context = context;
    source.home = dir_.Path("home");
    return LoadClusterConfig(source);
  }
  // The error of a kubeconfig whose user has these lines.
  std::string UserError(const std::string& lines) {
    return ErrorOf(absl::StrCat(
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: "
        "u}}]\nclusters: [{name: c, cluster: {server: \"https://h:1\"}}]\n"
        "users:\n- name: u\n  user:\n",
        lines));
  }
  std::string ErrorOf(const std::string& text) {
    const std::string path = Put("bad", text);
    const auto config = Load(path);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument)
        << config.status();
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(path));
    return std::string(config.status().message());
  }

  test::TempDir dir_;
};

constexpr char kTwoContexts[] = R"(
apiVersion: v1
kind: Config
current-context: dev
preferences: {}
contexts:
- name: dev
  context: {cluster: minikube, user: me, namespace: team}
- name: prod
  context: {cluster: far, user: robot}
- name: nobody
  context: {cluster: far}
clusters:
- name: minikube
  cluster:
    certificate-authority: pki/ca.crt
    server: https://192.168.49.2:8443
    extensions: [{name: cluster_info, extension: {provider: minikube.sigs.k8s.io}}]
- name: far
  cluster:
    certificate-authority-data: RkFSIENB
    server: https://far.example/k8s/clusters/c-1
    tls-server-name: kube
    proxy-url: http://proxy:3128
users:
- name: me
  user:
    client-certificate: pki/me.crt
    client-key: pki/me.key
- name: robot
  user:
    token: 12345
)";

TEST_F(KubeconfigTest, CurrentContextWithFilesBesideIt) {
  Put("pki/ca.crt", "CA");
  Put("pki/me.crt", "CERT");
  Put("pki/me.key", "KEY");
  const std::string path = Put("config", kTwoContexts);
  const auto config = Load(path);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://192.168.49.2:8443");
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->client_cert_pem, "CERT");
  EXPECT_EQ(config->client_key_pem, "KEY");
  EXPECT_EQ(config->namespace_name, "team");
  EXPECT_EQ(config->token, "");
  EXPECT_EQ(config->origin, absl::StrCat("context dev of ", path));
}

TEST_F(KubeconfigTest, AnotherContextWithDataInside) {
  const std::string path = Put("config", kTwoContexts);
  const auto config = Load(path, "prod");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://far.example/k8s/clusters/c-1");
  EXPECT_EQ(config->ca_pem, "FAR CA");
  EXPECT_EQ(config->tls_server_name, "kube");
  EXPECT_EQ(config->proxy_url, "http://proxy:3128");
  EXPECT_EQ(config->token, "12345");
  EXPECT_EQ(config->namespace_name, "default");
  const auto anonymous = Load(path, "nobody");
  ASSERT_TRUE(anonymous.ok()) << anonymous.status();
  EXPECT_EQ(anonymous->token, "");
}

TEST_F(KubeconfigTest, SeveralFilesAreMergedAndTheFirstWins) {
  const std::string first = Put("a/config", R"(
current-context: one
contexts: [{name: one, context: {cluster: c, user: u}}]
users: [{name: u, user: {tokenFile: tok}}]
)");
  const std::string second = Put("b/config", R"(
current-context: two
contexts: [{name: one, context: {cluster: other, user: other}}]
clusters: [{name: c, cluster: {server: "https://b:1", certificate-authority: ca}}]
users: [{name: u, user: {token: not-this}}]
)");
  Put("b/ca", "B CA");
  const auto config =
      Load(absl::StrCat(first, ":", dir_.Path("missing"), ":", second));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://b:1");
  EXPECT_EQ(config->ca_pem, "B CA");
  EXPECT_EQ(config->token_file, dir_.Path("a/tok"));
  EXPECT_EQ(config->token, "");
}

TEST_F(KubeconfigTest, HomeIsUsedWhenNothingIsSet) {
  Put("home/.kube/config", R"(
current-context: h
contexts: [{name: h, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:8001", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {username: admin, password: "pass: word"}}]
)");
  const auto config = Load("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->insecure_skip_tls_verify);
  EXPECT_EQ(config->username, "admin");
  EXPECT_EQ(config->password, "pass: word");
}

TEST_F(KubeconfigTest, LoginProgram) {
  ConfigSource source;
  source.home = dir_.Path("home");
  source.environment = {"PATH=/bin"};
  Put("home/.kube/config", R"(
current-context: gke
contexts: [{name: gke, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://1.2.3.4"}}]
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: gke-gcloud-auth-plugin
      args: [--verbose, "7"]
      env: [{name: A, value: b}, {name: EMPTY, value: }]
      installHint: Install gke-gcloud-auth-plugin
      provideClusterInfo: true
      interactiveMode: IfAvailable
)");
  const auto config = LoadClusterConfig(source);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->exec.command, "gke-gcloud-auth-plugin");
  EXPECT_EQ(config->exec.api_version, "client.authentication.k8s.io/v1beta1");
  EXPECT_THAT(config->exec.args, ElementsAre("--verbose", "7"));
  EXPECT_THAT(config->exec.env, ElementsAre(Pair("A", "b"), Pair("EMPTY", "")));
  EXPECT_EQ(config->exec.install_hint, "Install gke-gcloud-auth-plugin");
  EXPECT_TRUE(config->exec.provide_cluster_info);
  EXPECT_THAT(config->exec.environment, ElementsAre("PATH=/bin"));
}

TEST_F(KubeconfigTest, RelativeLoginProgramIsBesideTheFile) {
  const std::string path = Put("k/config", R"(
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://1.2.3.4"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login}}}]
)");
  EXPECT_EQ(Load(path)->exec.command, dir_.Path("k/bin/login"));
}

TEST_F(KubeconfigTest, ErrorsNameFileAndEntry) {
  EXPECT_THAT(ErrorOf("a: [b"), HasSubstr("line"));
  EXPECT_THAT(ErrorOf("- a"), HasSubstr("no mapping"));
  EXPECT_THAT(ErrorOf("clusters: {}\n"), HasSubstr("clusters is no list"));
  EXPECT_THAT(ErrorOf("clusters: [{cluster: {}}]"), HasSubstr("has no name"));
  EXPECT_THAT(ErrorOf("clusters: [{name: c, cluster: 7}]"),
              AllOf(HasSubstr("cluster \"c\""), HasSubstr("no mapping")));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no current-context"));
  EXPECT_THAT(ErrorOf("current-context: y\ncontexts: [{name: x, context: {}}]"),
              AllOf(HasSubstr("no context \"y\""), HasSubstr("x")));
  const std::string context =
      "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: "
      "u}}]\n";
  EXPECT_THAT(ErrorOf(context),
              AllOf(HasSubstr("context \"x\""), HasSubstr("no cluster \"c\"")));
  EXPECT_THAT(ErrorOf(context + "clusters: [{name: c, cluster: {server: "
                                "\"https://h\"}}]"),
              AllOf(HasSubstr("context \"x\""), HasSubstr("no user \"u\"")));
  const std::pair<const char*, const char*> clusters[] = {
      {"{}", "server \"\""},
      {"{server: \"h:6443\"}", "https://"},
      {"{server: [a]}", "server is no text"},
      {"{server: \"https://h\", certificate-authority-data: \"*\"}",
       "not base64"},
      {"{server: \"https://h\", certificate-authority: gone}", "gone"},
      {"{server: \"https://h\", insecure-skip-tls-verify: maybe}", "maybe"},
      {"{server: \"https://h\", insecure-skip-tls-verify: true, "
       "certificate-authority-data: QUJD}",
       "exclude"},
  };
  for (const auto& [text, why] : clusters) {
    EXPECT_THAT(
        ErrorOf(absl::StrCat(context, "users: [{name: u, user: {}}]\n",
                             "clusters: [{name: c, cluster: ", text, "}]")),
        AllOf(HasSubstr("cluster \"c\""), HasSubstr(why)));
  }
}

TEST_F(KubeconfigTest, ErrorsOfUsers) {
  const std::pair<const char*, const char*> users[] = {
      {"    client-certificate-data: QUJD\n", "client-key"},
      {"    client-certificate: gone\n", "gone"},
      {"    token: [a]\n", "token is no text"},
      {"    auth-provider: {name: gcp}\n", "gke-gcloud-auth-plugin"},
      {"    as: root\n", "impersonation"},
      {"    exec: {command: x}\n", "apiVersion"},
      {"    exec: {apiVersion: client.authentication.k8s.io/v1alpha1, "
       "command: x}\n",
       "v1alpha1"},
      {"    exec: {apiVersion: client.authentication.k8s.io/v1}\n",
       "no command"},
      {"    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, "
       "interactiveMode: Always}\n",
       "interactiveMode"},
      {"    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, "
       "env: [a]}\n",
       "env"},
      {"    token: t\n    exec: {apiVersion: client.authentication.k8s.io/v1, "
       "command: x}\n",
       "exclude"},
  };
  for (const auto& [text, why] : users) {
    EXPECT_THAT(UserError(text),
                AllOf(HasSubstr("user \"u\""), HasSubstr(why)));
  }
}

TEST_F(KubeconfigTest, NothingAtAllSaysWhereItLooked) {
  const auto config = Load("");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()),
              AllOf(HasSubstr("home/.kube/config"),
                    HasSubstr("KUBERNETES_SERVICE_HOST")));
}

class InClusterTest : public KubeconfigTest {
 protected:
  InClusterTest() {
    source_.service_host = "10.0.0.1";
    source_.service_port = "443";
    source_.account_dir = dir_.Path("account");
    source_.home = dir_.Path("home");
    Put("account/token", "tok\n");
    Put("account/ca.crt", "CA");
    Put("account/namespace", "team\n");
  }
  ConfigSource source_;
};

TEST_F(InClusterTest, AccountOfThePod) {
  auto config = LoadClusterConfig(source_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->token_file, dir_.Path("account/token"));
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->namespace_name, "team");
  source_.service_host = "fd00::1";
  EXPECT_EQ(LoadClusterConfig(source_)->server, "https://[fd00::1]:443");
}

TEST_F(InClusterTest, KubeconfigWhenForcedOrWithoutAnAccount) {
  Put("home/.kube/config", R"(
current-context: h
contexts: [{name: h, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://file"}}]
)");
  EXPECT_EQ(LoadClusterConfig(source_)->server, "https://10.0.0.1:443");
  source_.force_kubeconfig = true;
  EXPECT_EQ(LoadClusterConfig(source_)->server, "https://file");
  source_.force_kubeconfig = false;
  source_.account_dir = dir_.Path("nowhere");
  EXPECT_EQ(LoadClusterConfig(source_)->server, "https://file");
  source_.home = dir_.Path("elsewhere");
  EXPECT_THAT(std::string(LoadClusterConfig(source_).status().message()),
              HasSubstr(dir_.Path("nowhere")));
}

}  // namespace
}  // namespace elasticdl::kube
