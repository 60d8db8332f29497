#include "kube/job_fixture.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"

namespace elasticdl::kube::test {
namespace {

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Records in a file of the data set, as `elasticdl data` writes it.
constexpr int64_t kRecordsPerFile = 4096;

// "2", "1500m" in thousandths of a CPU.
int64_t Millicpu(absl::string_view text) {
  double value = 0;
  const bool milli = absl::ConsumeSuffix(&text, "m");
  if (!absl::SimpleAtod(text, &value)) return 0;
  return std::llround(milli ? value : value * 1000);
}

int64_t RequestOf(const Json& pod) {
  int64_t sum = 0;
  for (const Json& container : ListAt(pod, "/spec/containers")) {
    sum += Millicpu(TextAt(container, "/resources/requests/cpu"));
  }
  return sum;
}

std::vector<std::string> Argv(const std::string& command,
                              const std::string& space, const Flags& flags) {
  std::vector<std::string> argv = {ELASTICDL_PROGRAM, command,
                                   "--namespace=" + space};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

}  // namespace

bool HasPhase(const Json& pod, const std::string& phase) {
  return TextAt(pod, "/status/phase") == phase;
}

double TimeOf(const Json& event) { return event.value("time", 0.0); }

PodBoard::PodBoard(Client& client) {
  Watch::Options options;
  options.resource = Pods();
  options.namespace_name = client.namespace_name();
  watch_ = std::make_unique<Watch>(
      client.transport(), options, [this](const WatchEvent& event) {
        MutexLock lock(mu_);
        const std::string name = TextAt(event.object, "/metadata/name");
        if (event.kind == WatchEvent::Kind::kDeleted) {
          pods_.erase(name);
        } else if (event.kind == WatchEvent::Kind::kSynced) {
          synced_ = true;
        } else if (!name.empty()) {
          pods_[name] = event.object;
        }
        changed_.NotifyAll();
      });
}

bool PodBoard::WaitUntil(const std::function<bool(const PodMap&)>& condition,
                         absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (!synced_ || !condition(pods_)) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return true;
}

Json PodBoard::WaitForPod(const std::string& name,
                          const std::function<bool(const Json&)>& condition,
                          absl::Duration timeout) {
  Json pod;
  WaitUntil(
      [&](const PodMap& pods) {
        const auto found = pods.find(name);
        if (found == pods.end() || !condition(found->second)) return false;
        pod = found->second;
        return true;
      },
      timeout);
  return pod;
}

PodBoard::PodMap PodBoard::Now() {
  MutexLock lock(mu_);
  return pods_;
}

KubeJob::KubeJob(std::string name, const std::string& out,
                 const ChildProcess::Options& options)
    : name_(std::move(name)),
      audit_(absl::StrCat(out, "/", name_, ".audit")),
      lines_(absl::StrCat(out, "/", name_, ".events")),
      client_(options) {}

std::string KubeJob::Worker(int id) const {
  return absl::StrCat("elasticdl-worker-", name_, "-", id);
}

std::string KubeJob::Server(int id) const {
  return absl::StrCat("elasticdl-ps-", name_, "-", id);
}

Json KubeJob::WaitForEvent(const std::string& event,
                           const std::function<bool(const Json&)>& wanted) {
  size_t& next = next_[event];
  bool ended = false;
  while (true) {
    for (; next < events_.size(); ++next) {
      const Json& json = events_[next];
      ended |= TextAt(json, "/event") == "job_end";
      if (TextAt(json, "/event") == event && wanted(json)) {
        return events_[next++];
      }
    }
    if (ended) break;
    const auto line = lines_.Next(kPatience);
    if (!line.has_value()) break;
    events_.push_back(Json::parse(*line, nullptr, false));
  }
  ADD_FAILURE() << name_ << ": no such event " << event << " in\n"
                << Json(events_).dump(1) << "\n"
                << Output();
  return nullptr;
}

Json KubeJob::WaitForWorld(size_t members) {
  return WaitForEvent("world", [&](const Json& event) {
    return ListAt(event, "/members").size() == members;
  });
}

Json KubeJob::WaitForFirstStep(const Json& world) {
  return WaitForEvent("first_step", [&](const Json& event) {
    return event["generation"] == world["generation"];
  });
}

int KubeJob::Wait(absl::Duration timeout) {
  return client_.Wait(timeout).value_or(-1);
}

std::string KubeJob::Output() const {
  return absl::StrCat("the client of ", name_, ":\n", client_.out(),
                      client_.err());
}

void KubeJobTest::SetUp() {
  for (const auto& [variable, value] :
       {std::pair("ELASTICDL_TEST_JOB_IMAGE", &image_),
        std::pair("ELASTICDL_TEST_DATA", &data_),
        std::pair("ELASTICDL_TEST_OUT", &out_)}) {
    *value = Environment(variable);
    if (value->empty()) {
      GTEST_SKIP() << variable << " is not set (see scripts/kube-tests.sh)";
    }
  }
  std::string why;
  cluster_ = RealCluster::Find(why);
  if (cluster_ == nullptr) GTEST_SKIP() << "no cluster: " << why;
  out_ = JoinPath(out_, space());
  ASSERT_EQ(mkdir(out_.c_str(), 0777), 0) << out_;
  // Pods run as another user; mkdir heeds the umask.
  ASSERT_EQ(chmod(out_.c_str(), 0777), 0) << out_;
  pods_ = std::make_unique<PodBoard>(client());
}

void KubeJobTest::TearDown() {
  if (cluster_ == nullptr) return;
  if (HasFailure()) {
    for (const auto& [name, pod] : pods().Now()) {
      printf("--- %s: %s\n%s", name.c_str(),
             pod.value("status", Json()).dump().c_str(), Log(name).c_str());
    }
  }
  // The next test shall find an idle cluster; a master that dies first makes no
  // new workers.
  const auto gone = [](const PodBoard::PodMap& pods) { return pods.empty(); };
  for (const char* type : {"master", "worker", "ps"}) {
    for (const auto& [name, pod] : pods().Now()) {
      if (TextAt(pod, "/metadata/labels/elasticdl-replica-type") != type) {
        continue;
      }
      client().Delete(Pods(), name, absl::ZeroDuration()).IgnoreError();
    }
  }
  EXPECT_TRUE(pods().WaitUntil(gone)) << "pods are left in " << space();
  while (!clean_ups_.empty()) {
    clean_ups_.back()();
    clean_ups_.pop_back();
  }
  pods_.reset();
  // Files of pods may belong to another user, who let everybody write here.
  RemoveTree(out_).IgnoreError();
}

std::string KubeJobTest::Volumes() const {
  return absl::StrCat("--volume=host_path=", data_,
                      ",mount_path=/data;host_path=", out_, ",mount_path=/out");
}

Flags KubeJobTest::JobFlags(const std::string& name, const Flags& more) const {
  Flags flags = {
      "--job_name=" + name,
      "--image=" + image_,
      "--image_pull_policy=IfNotPresent",
      "--model_def=mnist.mlp.custom_model",
      "--minibatch_size=64",
      "--num_threads=1",
      Volumes(),
      "--master_resource_request=cpu=50m,memory=128Mi",
      "--master_resource_limit=cpu=1,memory=1024Mi",
      "--worker_resource_request=cpu=100m,memory=256Mi",
      "--worker_resource_limit=cpu=1,memory=2048Mi",
      absl::StrCat("--event_log=/out/", name, ".events"),
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags KubeJobTest::TrainFlags(const std::string& name,
                              const Flags& more) const {
  Flags flags = {"--training_data=/data/mnist/train",
                 "--distribution_strategy=AllreduceStrategy",
                 absl::StrCat("--ledger_audit=/out/", name, ".audit")};
  flags.insert(flags.end(), more.begin(), more.end());
  return JobFlags(name, flags);
}

std::unique_ptr<KubeJob> KubeJobTest::Submit(const std::string& command,
                                             const std::string& name,
                                             const Flags& flags) {
  ChildProcess::Options options;
  options.argv = Argv(command, space(), flags);
  options.log = Path(name);
  return std::make_unique<KubeJob>(name, out(), options);
}

std::unique_ptr<KubeJob> KubeJobTest::Train(const std::string& name,
                                            const Flags& more) {
  return Submit("train", name, TrainFlags(name, more));
}

KubeJobTest::Outcome KubeJobTest::Elasticdl(const std::string& command,
                                            const Flags& flags,
                                            absl::Duration timeout) {
  return Run(Argv(command, space(), flags), timeout);
}

KubeJobTest::Outcome KubeJobTest::Run(const std::vector<std::string>& argv,
                                      absl::Duration timeout) {
  ChildProcess::Options options;
  options.argv = argv;
  options.log = Path(absl::StrCat("run", ++runs_));
  ChildProcess child(options);
  Outcome outcome;
  outcome.exit_code = child.Wait(timeout).value_or(-1);
  outcome.out = child.out();
  outcome.err = child.err();
  return outcome;
}

testing::AssertionResult KubeJobTest::LedgerIsExact(const std::string& audit,
                                                    int64_t epochs,
                                                    const Flags& more) {
  std::vector<std::string> argv = {ELASTICDL_LEDGER_CHECK, audit,
                                   absl::StrCat("--epochs=", epochs)};
  for (int64_t first = 0, file = 0; first < kTrainRecords;
       first += kRecordsPerFile, ++file) {
    argv.push_back(
        absl::StrFormat("--shard=/data/mnist/train/data-%05d:0:%d", file,
                        std::min(kRecordsPerFile, kTrainRecords - first)));
  }
  argv.insert(argv.end(), more.begin(), more.end());
  const Outcome check = Run(argv);
  if (check.exit_code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << check.out << check.err;
}

testing::AssertionResult KubeJobTest::WaitForLine(const std::string& path,
                                                  const std::string& words) {
  LineFollower lines(path);
  std::string seen;
  while (auto line = lines.Next(kPatience)) {
    if (absl::StrContains(*line, words)) return testing::AssertionSuccess();
    absl::StrAppend(&seen, *line, "\n");
  }
  return testing::AssertionFailure() << words << " is not in\n" << seen;
}

testing::AssertionResult KubeJobTest::TopShows(
    const std::string& job,
    const testing::Matcher<const std::string&>& wanted) {
  const absl::Time deadline = absl::Now() + kPatience;
  Outcome top;
  do {
    top = Elasticdl("top", {"--job_name=" + job, "--json"});
    if (top.exit_code == 0 && wanted.Matches(top.out)) {
      return testing::AssertionSuccess();
    }
  } while (top.exit_code == 0 && absl::Now() < deadline);
  return testing::AssertionFailure() << top.exit_code << top.out << top.err;
}

bool KubeJobTest::WaitGone(const Resource& resource, const std::string& name) {
  Queue<int> gone(100);
  Watch::Options options;
  options.resource = resource;
  options.namespace_name = space();
  bool synced = false;
  std::set<std::string> names;
  const Watch watch(
      client().transport(), options, [&](const WatchEvent& event) {
        const std::string its = TextAt(event.object, "/metadata/name");
        if (event.kind == WatchEvent::Kind::kDeleted) {
          names.erase(its);
        } else {
          names.insert(its);
        }
        synced |= event.kind == WatchEvent::Kind::kSynced;
        if (synced && names.count(name) == 0) gone.Push(1);
      });
  return gone.Pop(kPatience).has_value();
}

void KubeJobTest::AtEnd(std::function<void()> clean_up) {
  clean_ups_.push_back(std::move(clean_up));
}

std::string KubeJobTest::Log(const std::string& pod) {
  std::string log;
  const absl::Status status = client().Logs(pod, Client::LogOptions(), nullptr,
                                            [&](absl::string_view bytes) {
                                              absl::StrAppend(&log, bytes);
                                              return true;
                                            });
  return status.ok() ? log : absl::StrCat(log, status.ToString(), "\n");
}

Json KubeJobTest::Killable(const std::string& program) {
  constexpr char kScript[] = R"("$0" "$@" & child=$!
trap 'kill -TERM $child' TERM
file=/out/kill-$POD_NAME
while [ ! -e $file ] && kill -0 $child 2>/dev/null; do sleep 0.1; done
if [ -e $file ]; then rm $file; kill -KILL $child; fi
wait $child)";
  return {{"container", {{"command", {"bash", "-c", kScript, program}}}}};
}

testing::AssertionResult KubeJobTest::KillContainer(const std::string& pod) {
  const absl::Status status =
      WriteFileAtomic(JoinPath(out(), "kill-" + pod), "", 0666);
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status;
}

void KubeJobTest::GrantRights() {
  const Outcome granted = Elasticdl("rbac", {"--apply"});
  ASSERT_EQ(granted.exit_code, 0) << granted.err;
}

Json KubeJobTest::Node() {
  const auto nodes = client().List({"", "v1", "nodes", false}, "");
  if (!nodes.ok()) return nullptr;
  for (const Json& node : ListAt(*nodes, "/items")) {
    if (ListAt(node, "/spec/taints").empty()) return node;
  }
  return nullptr;
}

int64_t KubeJobTest::FreeMillicpu(const Json& node) {
  int64_t free = Millicpu(TextAt(node, "/status/allocatable/cpu"));
  const auto all = client().List({"", "v1", "pods", false}, "");
  EXPECT_TRUE(all.ok()) << all.status();
  if (!all.ok()) return 0;
  for (const Json& pod : ListAt(*all, "/items")) {
    if (TextAt(pod, "/spec/nodeName") == TextAt(node, "/metadata/name") &&
        !HasPhase(pod, "Succeeded") && !HasPhase(pod, "Failed")) {
      free -= RequestOf(pod);
    }
  }
  return free;
}

Json KubeJobTest::OnNode(const Json& node) {
  return {{"pod_spec",
           {{"nodeSelector",
             {{"kubernetes.io/hostname",
               node.value(Json::json_pointer(
                              "/metadata/labels/kubernetes.io~1hostname"),
                          "")}}}}}};
}

}  // namespace elasticdl::kube::test
