// The real `elasticdl` against the cluster of the kubeconfig: objects, owner
// references, exit codes, the way through the API server, rights. See
// kube/real_cluster.h; the image needs bash and perl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/watch.h"
#include "kube/real_cluster.h"
#include "support/child_process.h"
#include "support/follow.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using kube::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const kube::Resource kAccounts = {"", "v1", "serviceaccounts", true};

// A namespace of its own for each test.
class ClusterKubeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    cluster_ = kube::test::RealCluster::Find(why);
    if (cluster_ == nullptr) GTEST_SKIP() << why;
    if (cluster_->image().empty()) GTEST_SKIP() << "no ELASTICDL_TEST_IMAGE";
    space_ = cluster_->namespace_name();
    client_ = &cluster_->client();
    const Outcome granted = Run(Elasticdl("rbac", {"--apply"}));
    ASSERT_EQ(granted.exit_code, 0) << granted.err;
  }

  struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
  };
  Outcome Run(const std::vector<std::string>& argv,
              std::vector<std::string> environment = {}) {
    test::ChildProcess::Options options;
    options.argv = argv;
    options.environment = std::move(environment);
    options.log = dir_.Path(absl::StrCat("run", ++runs_));
    test::ChildProcess child(options);
    Outcome outcome;
    outcome.exit_code = child.Wait().value_or(-1);
    outcome.out = child.out();
    outcome.err = child.err();
    return outcome;
  }
  std::vector<std::string> Elasticdl(const std::string& command,
                                     std::vector<std::string> more = {}) const {
    std::vector<std::string> argv = {ELASTICDL_PROGRAM, command,
                                     "--namespace=" + space_};
    if (command != "list" && command != "rbac") {
      argv.push_back("--job_name=kt");
    }
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }
  // A job whose master is a shell script.
  std::vector<std::string> Train(const std::string& script,
                                 std::vector<std::string> more = {}) const {
    const Json spec = {
        {"master_pod_spec",
         {{"container",
           {{"command", {"bash", "-c", script}}, {"args", Json::array()}}},
          {"terminationGracePeriodSeconds", 1}}}};
    std::vector<std::string> argv =
        Elasticdl("train", {"--image=" + cluster_->image(),
                            "--image_pull_policy=IfNotPresent",
                            "--model_def=m.f", "--training_data=/data",
                            "--master_resource_request=cpu=10m,memory=64Mi",
                            "--cluster_spec_json=" + spec.dump()});
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }
  bool May(const std::string& user, const std::string& verb,
           const std::string& resource) {
    const Json review = {
        {"apiVersion", "authorization.k8s.io/v1"},
        {"kind", "LocalSubjectAccessReview"},
        {"metadata", {{"namespace", space_}}},
        {"spec",
         {{"user", user},
          {"resourceAttributes",
           {{"namespace", space_}, {"verb", verb}, {"resource", resource}}}}}};
    const auto answer = client_->Create(*kube::ResourceOf(review), review);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && (*answer)["status"].value("allowed", false);
  }
  void ExpectPage();
  // Waits until none of the job's objects of this kind is left.
  bool WaitGone(const kube::Resource& resource) {
    Mutex mu;
    CondVar changed;
    std::set<std::string> names;
    bool synced = false;
    kube::Watch::Options options;
    options.resource = resource;
    options.namespace_name = space_;
    options.selector = "elasticdl-job-name=kt";
    kube::Watch watch(
        client_->transport(), options, [&](const kube::WatchEvent& event) {
          MutexLock lock(mu);
          const std::string name = kube::TextAt(event.object, "/metadata/name");
          if (event.kind == kube::WatchEvent::Kind::kDeleted) {
            names.erase(name);
          } else if (event.kind == kube::WatchEvent::Kind::kSynced) {
            synced = true;
          } else if (!name.empty()) {
            names.insert(name);
          }
          changed.NotifyAll();
        });
    bool gone = false;
    {
      MutexLock lock(mu);
      while (!(synced && names.empty()) &&
             changed.WaitFor(mu, test::kPatience)) {
      }
      gone = synced && names.empty();
    }
    watch.Stop();
    return gone;
  }

  test::TempDir dir_;
  std::unique_ptr<kube::test::RealCluster> cluster_;
  std::string space_;
  kube::Client* client_ = nullptr;
  int runs_ = 0;
};

// A master's status page in a few lines; it ends when it is told to stop. The
// second message of a stream is sent with the answer to the next request.
constexpr char kMaster[] = R"(exec perl -e '
use IO::Socket::INET; $| = 1;
$s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5) or die;
open F, "/etc/elasticdl/job/token"; $t = <F>;
-s "/etc/elasticdl/job/worker-pod.json" or die; -w "/var/lib/elasticdl" or die;
print "up\n";
while ($c = $s->accept) {
  $l = <$c>; while (<$c>) { last if /^\r?$/ }
  $ok = index($l, "token=$t") >= 0;
  if ($ok && $l =~ /stream/) {
    print $c "HTTP/1.1 200 x\r\nContent-Type: text/event-stream\r\n" .
        "Connection: close\r\n\r\ndata: 1\n\n";
    $c->flush; $held = $c; next;
  }
  if ($held) { print $held "data: 2\n\n"; close $held; $held = undef; }
  $b = $ok ? "{\"job\":\"kt\",\"step\":7}" : "{\"error\":\"no\"}";
  print $c "HTTP/1.1 " . ($ok ? 200 : 401) . " x\r\nContent-Length: " .
      length($b) . "\r\nConnection: close\r\n\r\n$b";
  close $c; print $l =~ /(\S+\?num_workers=\d+)/ ? "$1\n" : "";
  exit 0 if $ok && $l =~ /stop/;
}')";

// The page of the job that runs, as a browser on this machine gets it.
void ClusterKubeTest::ExpectPage() {
  test::ChildProcess::Options options;
  options.argv = Elasticdl("open", {"--state_dir=" + dir_.Path("state")});
  options.environment = {"DISPLAY=", "WAYLAND_DISPLAY=", "BROWSER="};
  options.log = dir_.Path("open");
  test::ChildProcess open(options);
  test::LineFollower lines(open.out_path());
  const std::string url = lines.Next().value_or("");
  ASSERT_THAT(url, HasSubstr("http://127.0.0.1:")) << open.err();
  const size_t slash = url.find("/?");
  ASSERT_NE(slash, std::string::npos) << url;
  httplib::Client browser(url.substr(0, slash));
  browser.set_read_timeout(60, 0);
  const auto page = browser.Get(url.substr(slash));
  ASSERT_TRUE(page) << open.err();
  EXPECT_EQ(page->body, "{\"job\":\"kt\",\"step\":7}");
  EXPECT_EQ(browser.Get("/")->status, 401);
  const httplib::Headers headers = {
      {"Authorization", "Bearer " + url.substr(url.find("token=") + 6)}};
  std::string heard;
  browser.Get("/api/v1/stream", headers, [&](const char* data, size_t size) {
    heard.append(data, size);
    // Nobody on the way waits for the second message.
    if (heard == "data: 1\n\n") {
      httplib::Client other(url.substr(0, slash));
      EXPECT_TRUE(other.Get("/api/v1/update", headers));
    }
    return true;
  });
  EXPECT_EQ(heard, "data: 1\n\ndata: 2\n\n");
  open.Signal(SIGINT);
  EXPECT_EQ(open.Wait(), 128 + SIGINT);
}

TEST_F(ClusterKubeTest, AJobFromSubmissionToRemoval) {
  const Outcome submitted = Run(Train(kMaster, {"--detach"}));
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_THAT(submitted.out, HasSubstr("elasticdl stop --job_name=kt"));
  const auto pod = client_->Get(kube::Pods(), "elasticdl-master-kt");
  ASSERT_TRUE(pod.ok()) << pod.status();
  for (const auto& [resource, name] :
       {std::pair(kube::Secrets(), "elasticdl-job-kt"),
        std::pair(kube::Services(), "elasticdl-master-kt")}) {
    const auto object = client_->Get(resource, name);
    ASSERT_TRUE(object.ok()) << object.status();
    const Json& owners = kube::ListAt(*object, "/metadata/ownerReferences");
    ASSERT_EQ(owners.size(), 1u);
    EXPECT_EQ(kube::TextAt(owners[0], "/uid"),
              kube::TextAt(*pod, "/metadata/uid"));
  }
  const Outcome again = Run(Train(kMaster));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("already exists"));

  test::ChildProcess::Options logs;
  logs.argv = Elasticdl("logs", {"master", "--follow"});
  logs.log = dir_.Path("follow");
  test::ChildProcess follower(logs);
  test::LineFollower lines(follower.out_path());
  ASSERT_EQ(lines.Next(), "up") << follower.err();
  EXPECT_EQ(Run(Elasticdl("top", {"--json"})).out,
            "{\"job\":\"kt\",\"step\":7}\n");
  const Outcome scaled = Run(Elasticdl("scale", {"--num_workers=3"}));
  EXPECT_EQ(scaled.exit_code, 0) << scaled.err;
  EXPECT_THAT(lines.Next().value_or(""), HasSubstr("num_workers=3"));
  ExpectPage();
  const Outcome stopped = Run(Elasticdl("stop", {"--keep_pods"}));
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out,
            "job kt has been stopped; its pods stay for their logs\n");
  EXPECT_EQ(follower.Wait(), 0);
  EXPECT_THAT(Run(Elasticdl("list")).out,
              ::testing::ContainsRegex("kt +succeeded"));

  // Deleting the master removes everything.
  ASSERT_TRUE(client_->Delete(kube::Pods(), "elasticdl-master-kt").ok());
  EXPECT_TRUE(WaitGone(kube::Pods()));
  EXPECT_TRUE(WaitGone(kube::Secrets()));
  EXPECT_TRUE(WaitGone(kube::Services()));
}

TEST_F(ClusterKubeTest, LogAndExitCodeComeBack) {
  const Outcome failed =
      Run(Train("echo one; echo two; exit 5", {"--restart_policy=Never"}));
  EXPECT_EQ(failed.exit_code, 5) << failed.err;
  EXPECT_EQ(failed.out, "one\ntwo\n");
  EXPECT_THAT(failed.err, HasSubstr("job kt failed (exit code 5)"));
  // A second one takes the place of the first, which has ended.
  const Outcome good = Run(Train("echo three"));
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.out, "three\n");
  EXPECT_THAT(good.err, HasSubstr("removing an earlier job kt"));
  const Outcome removed = Run(Elasticdl("stop"));
  EXPECT_THAT(removed.out, HasSubstr("its objects are removed"));
  EXPECT_TRUE(WaitGone(kube::Secrets()));
}

TEST_F(ClusterKubeTest, PodsThatCannotRunSayWhy) {
  test::ChildProcess::Options options;
  options.argv =
      Train("true", {"--master_resource_request=cpu=10000,memory=1Mi"});
  options.log = dir_.Path("pending");
  test::ChildProcess child(options);
  test::LineFollower lines(child.err_path());
  std::string seen;
  while (!absl::StrContains(seen, "the master is pending")) {
    const auto line = lines.Next();
    ASSERT_TRUE(line.has_value()) << seen;
    absl::StrAppend(&seen, *line, "\n");
  }
  EXPECT_THAT(seen, HasSubstr("Insufficient cpu"));
  child.Signal(SIGINT);
  EXPECT_EQ(child.Wait(), 128 + SIGINT);
  EXPECT_THAT(child.err(), HasSubstr("detached; job kt keeps running"));
  EXPECT_EQ(Run(Elasticdl("stop")).exit_code, 0);
  EXPECT_TRUE(WaitGone(kube::Secrets()));
}

TEST_F(ClusterKubeTest, KubectlAcceptsTheYamlAndTheManifests) {
  if (Run({"sh", "-c", "command -v kubectl"}).exit_code != 0) {
    GTEST_SKIP() << "no kubectl in the PATH";
  }
  const std::string file = dir_.Path("job.yaml");
  const Outcome written = Run(
      Train("true", {"--yaml=" + file, "--envs=A=yes,B=1",
                     "--volume=claim_name=c,mount_path=/data;host_path=/tmp,"
                     "mount_path=/t,sub_path=s",
                     "--populate_env_names=X.*", "--worker_pod_priority=0.5"}));
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const auto apply = [&](const std::string& path,
                         const std::string& dry_run = "server") {
    return Run({"kubectl", "apply", "--dry-run=" + dry_run, "-f", path});
  };
  const Outcome applied = apply(file);
  EXPECT_EQ(applied.exit_code, 0) << applied.err;
  EXPECT_THAT(applied.out, HasSubstr("pod/elasticdl-master-kt created"));
  EXPECT_THAT(Run(Elasticdl("list")).out, HasSubstr("no jobs"));
  for (const char* name :
       {"elasticdl-rbac.yaml", "high-prio.yaml", "low-prio.yaml",
        "minikube-demo.yaml", "minikube-volume.yaml", "k8s-demo.yaml"}) {
    // The pod of a demo runs as an account that the same file makes, and a
    // server makes nothing in a dry run. JobTest.DemoManifest applies one.
    const bool demo = absl::EndsWith(name, "-demo.yaml");
    const Outcome outcome =
        apply(JoinPath(ELASTICDL_SOURCE_DIR "/kube/manifests", name),
              demo ? "client" : "server");
    EXPECT_EQ(outcome.exit_code, 0) << name << ": " << outcome.err;
  }
}

TEST_F(ClusterKubeTest, SubmissionIsCheckedBeforeAnythingIsMade) {
  const auto refused = [&](const std::vector<std::string>& more) {
    const Outcome outcome = Run(Train("true", more));
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_THAT(Run(Elasticdl("list")).out, HasSubstr("no jobs"));
    return outcome.err;
  };
  EXPECT_THAT(refused({"--namespace=elasticdl-no-such"}),
              HasSubstr("there is no namespace elasticdl-no-such"));
  EXPECT_THAT(refused({"--volume=claim_name=no-such,mount_path=/d"}),
              HasSubstr("there is no claim no-such"));
  EXPECT_THAT(refused({"--master_pod_priority=no-such"}),
              HasSubstr("there is no priority class no-such"));
  EXPECT_THAT(refused({"--worker_pod_priority=no-such"}),
              HasSubstr("there is no priority class no-such"));
  EXPECT_THAT(refused({R"(--cluster_spec_json={"worker_pod_spec":)"
                       R"({"container":{"ports":[{"containerPort":0}]}}})"}),
              HasSubstr("containerPort"));
  const Outcome missing =
      Run({ELASTICDL_PROGRAM, "list", "--namespace=elasticdl-no-such"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no namespace"));
  EXPECT_TRUE(
      client_->Get(kube::Secrets(), "elasticdl-job-kt").status().code() ==
      absl::StatusCode::kNotFound);
}

TEST_F(ClusterKubeTest, GrantingRightsTakesThemFromNobody) {
  for (const std::string account : {"one", "two"}) {
    const Outcome granted =
        Run(Elasticdl("rbac", {"--service_account=" + account, "--apply"}));
    ASSERT_EQ(granted.exit_code, 0) << granted.err;
  }
  const Outcome client =
      Run(Elasticdl("rbac", {"--client", "--user=ann", "--apply"}));
  ASSERT_EQ(client.exit_code, 0) << client.err;
  for (const std::string account : {"default", "one", "two"}) {
    EXPECT_TRUE(May("system:serviceaccount:" + space_ + ":" + account, "create",
                    "pods"))
        << account;
  }
  EXPECT_TRUE(May("ann", "create", "secrets"));
  EXPECT_FALSE(May("bob", "create", "secrets"));
}

TEST_F(ClusterKubeTest, MissingRightsAreNamedAndGranted) {
  // A token of a new service account.
  kube::Request request;
  request.method = "POST";
  request.path = {"api",     "v1",   "namespaces", space_, "serviceaccounts",
                  "trainer", "token"};
  ASSERT_TRUE(client_
                  ->Create(kAccounts, {{"apiVersion", "v1"},
                                       {"kind", "ServiceAccount"},
                                       {"metadata", {{"name", "trainer"}}}})
                  .ok());
  request.body = R"({"apiVersion": "authentication.k8s.io/v1",
                     "kind": "TokenRequest", "spec": {}})";
  const auto response =
      client_->transport().Call(request, absl::Seconds(20), nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  const std::string token = kube::TextAt(
      Json::parse(response->body, nullptr, false), "/status/token");
  ASSERT_FALSE(token.empty()) << response->body;
  // JSON is YAML.
  const Json kubeconfig = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", "c"},
      {"clusters",
       Json::array({{{"name", "c"},
                     {"cluster",
                      {{"server", cluster_->config().server},
                       {"certificate-authority-data",
                        absl::Base64Escape(cluster_->config().ca_pem)}}}}})},
      {"users", Json::array({{{"name", "u"}, {"user", {{"token", token}}}}})},
      {"contexts",
       Json::array(
           {{{"name", "c"}, {"context", {{"cluster", "c"}, {"user", "u"}}}}})}};
  const std::string file = dir_.Path("kubeconfig");
  ASSERT_TRUE(WriteFileAtomic(file, kubeconfig.dump(), 0600).ok());
  const std::vector<std::string> as_trainer = {"KUBECONFIG=" + file};

  const std::string cure =
      absl::StrCat("elasticdl rbac --client --namespace=", space_,
                   " --service_account=trainer --apply");
  const Outcome refused = Run(Elasticdl("list"), as_trainer);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(
      refused.err,
      absl::StrCat("elasticdl list: service account trainer may not "
                   "list pods in namespace ",
                   space_, "; an administrator can grant it: ", cure, "\n"));
  // The rights of a master are not those of a client.
  ASSERT_EQ(Run(Elasticdl("rbac", {"--service_account=trainer", "--apply"}))
                .exit_code,
            0);
  EXPECT_EQ(Run(Elasticdl("list"), as_trainer).exit_code, 0);
  const Outcome half = Run(Train("true"), as_trainer);
  EXPECT_EQ(half.exit_code, 1);
  EXPECT_THAT(half.err, AllOf(HasSubstr("may not get pods/log"),
                              HasSubstr("create secrets"), HasSubstr(cure)));
  // The cure that was named cures.
  const Outcome granted = Run(
      {"sh", "-c",
       absl::StrCat("exec ", ELASTICDL_PROGRAM, cure.substr(cure.find(' ')))});
  EXPECT_EQ(granted.exit_code, 0) << granted.err;
  const Outcome job = Run(Train(kMaster, {"--detach"}), as_trainer);
  EXPECT_EQ(job.exit_code, 0) << job.err;
  const Outcome stopped = Run(Elasticdl("stop"), as_trainer);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_TRUE(WaitGone(kube::Secrets()));
}

}  // namespace
}  // namespace elasticdl::cli
