// --cluster_spec: YAML, JSON, and Python as the tutorial has it.
#include "cluster/spec_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;

// The example of the original's tutorial on clusters.
constexpr char kTutorial[] = R"(
from kubernetes import client

class MyCluster:
    def __init__(self):
        self._pool = "elasticdl"
        self._app_name = "elasticdl"

    # Add pod specifications
    def with_pod(self, pod):
        # Add a label
        pod.metadata.labels["my_app"] = self._app_name

        # Add tolerations
        tolerations = [
            client.V1Toleration(
                effect="NoSchedule",
                key="mycluster.com/app-pool",
                operator="Equal",
                value=self._pool ,
            ),
        ]
        pod.spec.tolerations = tolerations
        return pod

    # Add service specifications
    def with_service(self, service):
        # Use ClusterIP
        service.spec.type = "ClusterIP"
        service.spec.cluster_ip = "None"
        return service

cluster = MyCluster()
)";

std::vector<std::string> ThisEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

bool HasKubernetesPackage() {
  return std::system(
             "IFS=:; for d in $PATH; do $d/python3 -c 'import kubernetes' "
             "&& exit 0; done 2> /dev/null; exit 1") == 0;
}

class ClusterSpecFileTest : public ::testing::Test {
 protected:
  ClusterSpecFileTest() {
    cluster::JobOptions options;
    options.job_name = "j";
    options.namespace_name = "ns";
    options.token = "t";
    options.master.image = options.worker.image = options.ps.image = "i";
    options.master.request = {{"cpu", "1"}, {"memory", "1Gi"}};
    options.volumes = {{"c", "", "", "/data", "sub"}};
    options.envs = {{"A", "1"}};
    objects_ = *cluster::MakeJobObjects(options);
  }
  absl::Status Apply(const std::string& name, const std::string& text) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return ApplyClusterSpecFile(path, environment_, &objects_);
  }

  test::TempDir dir_;
  std::vector<std::string> environment_ = ThisEnvironment();
  cluster::JobObjects objects_;
};

TEST_F(ClusterSpecFileTest, YamlAndJsonPatches) {
  ASSERT_TRUE(Apply("spec.yaml",
                    "pod_spec:\n"
                    "  labels: {my_app: elasticdl, build: \"7\"}\n"
                    "  tolerations:\n"
                    "  - key: mycluster.com/app-pool\n"
                    "    operator: Equal\n"
                    "    value: elasticdl\n"
                    "    effect: NoSchedule\n"
                    "service_spec:\n"
                    "  clusterIP: None\n")
                  .ok());
  EXPECT_EQ(objects_.worker_pod["metadata"]["labels"]["build"], "7");
  EXPECT_EQ(objects_.master_pod["spec"]["tolerations"][0]["value"],
            "elasticdl");
  EXPECT_EQ(objects_.service["spec"]["clusterIP"], "None");
  ASSERT_TRUE(
      Apply("spec.json", R"({"ps_pod_spec": {"labels": {"l": "ps"}}})").ok());
  EXPECT_EQ(objects_.ps_pod["metadata"]["labels"]["l"], "ps");
}

TEST_F(ClusterSpecFileTest, MistakesNameTheFile) {
  EXPECT_THAT(std::string(Apply("s.yaml", "a: [").message()),
              HasSubstr("s.yaml: line"));
  EXPECT_THAT(std::string(Apply("s.yaml", "podspec: {}").message()),
              HasSubstr("'podspec' is not one of"));
  const absl::Status missing =
      ApplyClusterSpecFile(dir_.Path("none.yaml"), environment_, &objects_);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.yaml"));
}

TEST_F(ClusterSpecFileTest, WithoutPythonTheWaysOutAreTold) {
  environment_ = {"PATH=" + dir_.path()};
  absl::Status status = Apply("spec.py", kTutorial);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no python3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("YAML"));
  // A python3 that has no such package.
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("python3"),
                              "#!/bin/sh\necho No module >&2\nexit 66\n", 0755)
                  .ok());
  status = Apply("spec.py", kTutorial);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("lacks the package kubernetes (No module)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("python3-kubernetes"));
}

TEST_F(ClusterSpecFileTest, TheTutorialsFileWorks) {
  if (!HasKubernetesPackage()) {
    GTEST_SKIP() << "python3-kubernetes is not installed";
  }
  const cluster::JobObjects before = objects_;
  const absl::Status status = Apply("spec.py", kTutorial);
  ASSERT_TRUE(status.ok()) << status;
  const std::pair<const nlohmann::json*, const nlohmann::json*> kPods[] = {
      {&before.master_pod, &objects_.master_pod},
      {&before.worker_pod, &objects_.worker_pod},
      {&before.ps_pod, &objects_.ps_pod}};
  for (const auto& [old_pod, pod] : kPods) {
    nlohmann::json expected = *old_pod;
    expected["metadata"]["labels"]["my_app"] = "elasticdl";
    expected["spec"]["tolerations"] =
        nlohmann::json::array({{{"effect", "NoSchedule"},
                                {"key", "mycluster.com/app-pool"},
                                {"operator", "Equal"},
                                {"value", "elasticdl"}}});
    // All else comes back as it was.
    EXPECT_EQ(*pod, expected);
  }
  nlohmann::json service = before.service;
  service["spec"]["clusterIP"] = "None";
  EXPECT_EQ(objects_.service, service);
}

TEST_F(ClusterSpecFileTest, MistakesInPythonAreShown) {
  if (!HasKubernetesPackage()) {
    GTEST_SKIP() << "python3-kubernetes is not installed";
  }
  EXPECT_THAT(std::string(Apply("a.py", "x = 1\n").message()),
              HasSubstr("no object named cluster"));
  EXPECT_THAT(std::string(Apply("b.py", "raise ValueError('why')\n").message()),
              HasSubstr("ValueError: why"));
  EXPECT_THAT(std::string(Apply("c.py",
                                "class C:\n"
                                "    def with_pod(self, pod):\n"
                                "        print('noise')\n"
                                "cluster = C()\n")
                              .message()),
              HasSubstr("cluster.with_pod returned nothing for master"));
  // Modules beside it can be imported; what it prints does no harm.
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("beside.py"), "NAME = 'n'\n").ok());
  const absl::Status status = Apply("d.py",
                                    "import beside\n"
                                    "class C:\n"
                                    "    def with_service(self, service):\n"
                                    "        print('noise')\n"
                                    "        service.metadata.labels['l'] = "
                                    "beside.NAME\n"
                                    "        return service\n"
                                    "cluster = C()\n");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(objects_.service["metadata"]["labels"]["l"], "n");
}

}  // namespace
}  // namespace elasticdl::cli
