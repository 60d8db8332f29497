// --cluster_spec_json: what it adds and what it refuses.
#include "elasticdl/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::cluster {
namespace {

using ::testing::HasSubstr;

class ClusterSpecTest : public ::testing::Test {
 protected:
  ClusterSpecTest() {
    JobOptions options;
    options.job_name = "j";
    options.namespace_name = "default";
    options.token = "t";
    options.master.image = options.worker.image = options.ps.image = "i";
    options.envs = {{"A", "1"}};
    objects_ = *MakeJobObjects(options);
  }
  absl::Status Apply(const std::string& text) {
    return ApplyClusterSpec(Json::parse(text), &objects_);
  }
  static Json Env(const Json& pod, const std::string& name) {
    for (const Json& variable : pod["spec"]["containers"][0]["env"]) {
      if (variable["name"] == name) return variable;
    }
    return Json();
  }

  JobObjects objects_;
};

TEST_F(ClusterSpecTest, PodSpecGoesToAllPods) {
  ASSERT_TRUE(Apply(R"({"pod_spec": {
    "labels": {"my_app": "x"}, "annotations": {"a/b": "c"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"x": 1}},
    "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]}})")
                  .ok());
  for (const Json* pod :
       {&objects_.master_pod, &objects_.worker_pod, &objects_.ps_pod}) {
    EXPECT_EQ((*pod)["metadata"]["labels"]["my_app"], "x");
    EXPECT_EQ((*pod)["metadata"]["labels"]["app"], "elasticdl");
    EXPECT_EQ((*pod)["metadata"]["annotations"]["a/b"], "c");
    EXPECT_EQ((*pod)["spec"]["tolerations"][0]["key"], "k");
    EXPECT_EQ((*pod)["spec"]["affinity"]["nodeAffinity"]["x"], 1);
    EXPECT_EQ(Env(*pod, "A")["value"], "2");
    EXPECT_EQ(Env(*pod, "B")["value"], "3");
    EXPECT_EQ((*pod)["spec"]["containers"].size(), 1u);
  }
}

TEST_F(ClusterSpecTest, OthersGoToTheirPodAfterPodSpec) {
  ASSERT_TRUE(Apply(R"({
    "pod_spec": {"labels": {"l": "all"}, "tolerations": [{"key": "a"}]},
    "worker_pod_spec": {"labels": {"l": "worker"},
                        "tolerations": [{"key": "b"}],
                        "nodeSelector": {"pool": "gpu"}, "env": {"E": "e"}},
    "master_pod_spec": {"serviceAccountName": "trainer"}})")
                  .ok());
  EXPECT_EQ(objects_.worker_pod["metadata"]["labels"]["l"], "worker");
  EXPECT_EQ(objects_.ps_pod["metadata"]["labels"]["l"], "all");
  EXPECT_EQ(objects_.worker_pod["spec"]["tolerations"].size(), 2u);
  EXPECT_EQ(objects_.worker_pod["spec"]["nodeSelector"]["pool"], "gpu");
  EXPECT_EQ(Env(objects_.worker_pod, "E")["value"], "e");
  EXPECT_FALSE(objects_.master_pod["spec"].contains("nodeSelector"));
  EXPECT_EQ(objects_.master_pod["spec"]["serviceAccountName"], "trainer");
}

TEST_F(ClusterSpecTest, ServiceSpecTakesAnyField) {
  ASSERT_TRUE(Apply(R"({"service_spec": {"type": "ClusterIP",
    "cluster_ip": "None", "metadata": {"labels": {"x": "y"}}}})")
                  .ok());
  EXPECT_EQ(objects_.service["spec"]["clusterIP"], "None");
  EXPECT_EQ(objects_.service["spec"]["ports"].size(), 2u);
  EXPECT_EQ(objects_.service["metadata"]["labels"]["x"], "y");
  EXPECT_EQ(objects_.service["metadata"]["labels"]["app"], "elasticdl");
  EXPECT_FALSE(objects_.service["spec"].contains("metadata"));
}

TEST_F(ClusterSpecTest, ContainersArePatchedNotReplaced) {
  ASSERT_TRUE(Apply(R"({"pod_spec": {
    "container": {"securityContext": {"runAsUser": 7},
                  "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    "volumes": [{"name": "v", "emptyDir": {}}]}})")
                  .ok());
  const Json& spec = objects_.worker_pod["spec"];
  EXPECT_EQ(spec["containers"][0]["securityContext"]["runAsUser"], 7);
  EXPECT_EQ(spec["containers"][0]["image"], "i");
  EXPECT_EQ(spec["containers"][0]["volumeMounts"].size(), 2u);
  EXPECT_EQ(spec["volumes"].size(), 2u);
  EXPECT_THAT(
      std::string(Apply(R"({"pod_spec": {"containers": []}})").message()),
      HasSubstr("\"container\""));
  EXPECT_FALSE(Apply(R"({"pod_spec": {"spec": {"containers": []}}})").ok());
}

TEST_F(ClusterSpecTest, MergePatchesOfMetadataAndSpec) {
  ASSERT_TRUE(Apply(R"({"worker_pod_spec": {
    "metadata": {"finalizers": ["x/y"]},
    "spec": {"terminationGracePeriodSeconds": 90,
             "automountServiceAccountToken": null}}})")
                  .ok());
  EXPECT_EQ(objects_.worker_pod["metadata"]["finalizers"][0], "x/y");
  EXPECT_EQ(objects_.worker_pod["spec"]["terminationGracePeriodSeconds"], 90);
  EXPECT_FALSE(
      objects_.worker_pod["spec"].contains("automountServiceAccountToken"));
}

TEST_F(ClusterSpecTest, PythonSpellingsAreUnderstood) {
  const Json keys = WithKubernetesKeys(Json::parse(R"({
    "node_selector": {"my_pool": "a_b"}, "host_network": true,
    "tolerations": [{"toleration_seconds": 3}],
    "affinity": {"pod_anti_affinity": {"label_selector":
      {"match_labels": {"elasticdl_job_name": "j"}}}},
    "load_balancer_ip": "1.2.3.4", "host_pid": true, "clusterIP": "None",
    "env": {"A_B": "c"}})"));
  EXPECT_EQ(keys["nodeSelector"]["my_pool"], "a_b");
  EXPECT_EQ(keys["hostNetwork"], true);
  EXPECT_EQ(keys["tolerations"][0]["tolerationSeconds"], 3);
  EXPECT_EQ(keys["affinity"]["podAntiAffinity"]["labelSelector"]["matchLabels"]
                ["elasticdl_job_name"],
            "j");
  EXPECT_EQ(keys["loadBalancerIP"], "1.2.3.4");
  EXPECT_EQ(keys["hostPID"], true);
  EXPECT_EQ(keys["clusterIP"], "None");
  EXPECT_EQ(keys["env"]["A_B"], "c");
}

TEST_F(ClusterSpecTest, MistakesAreNamed) {
  const struct {
    const char* text;
    const char* words;
  } kCases[] = {
      {R"([])", "expected an object"},
      {R"({"podspec": {}})", "'podspec' is not one of"},
      {R"({"pod_spec": []})", "pod_spec: expected an object"},
      {R"({"pod_spec": {"labels": {"a": 1}}})", "'a' must be a string"},
      {R"({"pod_spec": {"env": "x"}})", "pod_spec.env: expected"},
      {R"({"pod_spec": {"env": [{"value": "x"}]}})", "has no \"name\""},
      {R"({"pod_spec": {"env": {"A": 1}}})", "'A' must be a string"},
      {R"({"ps_pod_spec": {"tolerations": {}}})",
       "ps_pod_spec.tolerations: expected a list"},
      {R"({"pod_spec": {"container": 1}})", "expected an object"},
  };
  for (const auto& one : kCases) {
    const absl::Status status = Apply(one.text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.words));
  }
}

}  // namespace
}  // namespace elasticdl::cluster
