// Jobs of the real programs on a real cluster: submitted with `elasticdl`,
// watched through the API server and their event log, judged by their audit.
// Besides what real_cluster.h says, these variables name what a test needs;
// scripts/kube-tests.sh explains them:
//   ELASTICDL_TEST_JOB_IMAGE  ElasticDL with the model mnist.mlp in /model_zoo
//   ELASTICDL_TEST_DATA       folder on the nodes: mnist/train and mnist/test
//   ELASTICDL_TEST_OUT        folder that nodes and tests both see; pods write
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/client.h"
#include "elasticdl/kube/watch.h"
#include "kube/real_cluster.h"
#include "support/child_process.h"
#include "support/follow.h"
#include "support/temp_dir.h"

namespace elasticdl::kube::test {

using elasticdl::test::ChildProcess;
using elasticdl::test::LineFollower;
using elasticdl::test::TempDir;
using Flags = std::vector<std::string>;

// Bounds the speed of a training job whatever the machine: an epoch takes one
// worker at least 4.7 seconds (938 batches), two workers half of it. For jobs
// that must still run when something has happened to them; they leave the
// processor to others.
inline constexpr char kPaced[] = "--failpoints=worker.step=delay(5)";

// How long a test waits for anything: a small cluster takes its time to pull,
// schedule and start.
inline constexpr absl::Duration kPatience = absl::Seconds(120);

// The pods of a namespace, as the API server tells them. Thread-safe.
class PodBoard {
 public:
  using PodMap = std::map<std::string, Json>;

  PodBoard(Client& client);

  // Waits until `condition` holds. False when the time is over.
  bool WaitUntil(const std::function<bool(const PodMap&)>& condition,
                 absl::Duration timeout = kPatience);
  // Waits until this pod is there and `condition` holds for it; the pod, or
  // null.
  Json WaitForPod(const std::string& name,
                  const std::function<bool(const Json&)>& condition,
                  absl::Duration timeout = kPatience);
  // The newest state, also of those that are gone: for the end of a test.
  PodMap Now();

 private:
  Mutex mu_;
  CondVar changed_;
  bool synced_ ABSL_GUARDED_BY(mu_) = false;
  PodMap pods_ ABSL_GUARDED_BY(mu_);
  // Last: its thread uses what is above.
  std::unique_ptr<Watch> watch_;
};

bool HasPhase(const Json& pod, const std::string& phase);
// Of an event, in seconds since 1970.
double TimeOf(const Json& event);

// One job that was submitted. Thread-compatible.
class KubeJob {
 public:
  // `out`: the folder of its event log and audit.
  KubeJob(std::string name, const std::string& out,
          const ChildProcess::Options& options);

  const std::string& name() const { return name_; }
  // The client that is attached to it.
  ChildProcess& client() { return client_; }
  std::string audit() const { return audit_; }
  std::string Master() const { return "elasticdl-master-" + name_; }
  std::string Worker(int id) const;
  // Its first pod; the next have -r1, -r2, …
  std::string Server(int id) const;

  // The next event called `event` that `wanted` accepts, after the last one of
  // this name that was returned; events of other names may come in any order. A
  // null value, and a failure of the test, when it does not come in time.
  Json WaitForEvent(
      const std::string& event, const std::function<bool(const Json&)>& wanted =
                                    [](const Json&) { return true; });
  // The next world with so many members.
  Json WaitForWorld(size_t members);
  // The event that tells of the first step of this world.
  Json WaitForFirstStep(const Json& world);
  // Exit code of the client, -1 when it does not end.
  int Wait(absl::Duration timeout);
  // What the client wrote, for messages of assertions.
  std::string Output() const;

 private:
  const std::string name_;
  const std::string audit_;
  LineFollower lines_;
  // All that came so far, and for each name the first that was not looked at.
  std::vector<Json> events_;
  std::map<std::string, size_t> next_;
  ChildProcess client_;
};

// A namespace of its own for each test, with the rights of a master.
class KubeJobTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTrainRecords = 60000;

  struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
  };

  void SetUp() override;
  void TearDown() override;

  Client& client() { return cluster_->client(); }
  const std::string& space() const { return cluster_->namespace_name(); }
  PodBoard& pods() { return *pods_; }
  const std::string& image() const { return image_; }
  // A folder of this test below ELASTICDL_TEST_OUT; pods see it at /out.
  const std::string& out() const { return out_; }
  // The folder on the nodes with the data.
  const std::string& data() const { return data_; }
  std::string Path(const std::string& name) const { return dir_.Path(name); }

  // What every job has in common; later flags win.
  Flags JobFlags(const std::string& name, const Flags& more) const;
  // Flags of a training job with an audit.
  Flags TrainFlags(const std::string& name, const Flags& more) const;
  // --volume: data at /data and the folder of the test at /out.
  std::string Volumes() const;
  // `elasticdl <command>` with these flags, attached; the job goes on in the
  // background.
  std::unique_ptr<KubeJob> Submit(const std::string& command,
                                  const std::string& name, const Flags& flags);
  std::unique_ptr<KubeJob> Train(const std::string& name, const Flags& more);
  // `elasticdl <command> --namespace=…` to its end.
  Outcome Elasticdl(const std::string& command, const Flags& flags,
                    absl::Duration timeout = kPatience);
  Outcome Run(const std::vector<std::string>& argv,
              absl::Duration timeout = kPatience);

  // Runs ledger_check: each training record once in each epoch.
  testing::AssertionResult LedgerIsExact(const std::string& audit,
                                         int64_t epochs,
                                         const Flags& more = {});
  // Waits until a line of this file holds `words`.
  static testing::AssertionResult WaitForLine(const std::string& path,
                                              const std::string& words);
  // Asks `elasticdl top` until its answer is as `wanted`: what the master tells
  // of itself is up to a fifth of a second old.
  testing::AssertionResult TopShows(
      const std::string& job,
      const testing::Matcher<const std::string&>& wanted);
  // Waits until an object is gone.
  bool WaitGone(const Resource& resource, const std::string& name);
  // Called when the pods of the test are gone; the last one first.
  void AtEnd(std::function<void()> clean_up);
  // The whole log of a pod.
  std::string Log(const std::string& pod);

  // A part of a pod's --cluster_spec that runs `program` so that KillContainer
  // works: the API has no way to kill a container.
  static Json Killable(const std::string& program);
  // SIGKILL to the program of this pod, which is Killable; once.
  testing::AssertionResult KillContainer(const std::string& pod);

  // Grants the default account the rights of a master.
  void GrantRights();

  // A node that takes pods; null if there is none, or it may not be seen.
  Json Node();
  // Thousandths of a CPU that others do not ask for there.
  int64_t FreeMillicpu(const Json& node);
  // A --cluster_spec_json that keeps all pods on this node.
  static Json OnNode(const Json& node);

 private:
  TempDir dir_;
  std::string image_;
  std::string data_;
  std::string out_;
  std::unique_ptr<RealCluster> cluster_;
  std::unique_ptr<PodBoard> pods_;
  std::vector<std::function<void()>> clean_ups_;
  int runs_ = 0;
};

}  // namespace elasticdl::kube::test
