// The objects of a job, by the facts that its parts rely on.
#include "elasticdl/cluster/job_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::cluster {
namespace {

using ::testing::HasSubstr;

JobOptions Example() {
  JobOptions options;
  options.job_name = "mnist";
  options.namespace_name = "team";
  options.token = "s3cret";
  options.master.image = "img:1";
  options.master.restart_policy = "OnFailure";
  options.master.command = {"elasticdl-master"};
  options.master.args = {"--job_name=mnist"};
  options.worker.image = "img:2";
  options.worker.command = {"elasticdl-worker"};
  options.ps.image = "img:2";
  return options;
}

JobObjects Make(const JobOptions& options) {
  const auto objects = MakeJobObjects(options);
  EXPECT_TRUE(objects.ok()) << objects.status();
  return *objects;
}

Json Container(const Json& pod) { return pod["spec"]["containers"][0]; }

// The element of a list whose name is this.
Json Named(const Json& list, const std::string& name) {
  for (const Json& one : list) {
    if (one["name"] == name) return one;
  }
  return Json();
}

TEST(JobObjectsTest, NamesAndLabelsAreThoseOfTheTutorials) {
  const JobObjects objects = Make(Example());
  EXPECT_EQ(objects.master_pod["metadata"]["name"], "elasticdl-master-mnist");
  EXPECT_EQ(objects.service["metadata"]["name"], "elasticdl-master-mnist");
  const Json secret = MakeSecret(Example(), objects);
  EXPECT_EQ(secret["metadata"]["name"], "elasticdl-job-mnist");
  for (const Json* object : {&objects.service, &objects.master_pod,
                             &objects.worker_pod, &objects.ps_pod, &secret}) {
    const Json& metadata = (*object)["metadata"];
    EXPECT_EQ(metadata["namespace"], "team");
    EXPECT_EQ(metadata["labels"]["elasticdl_job_name"], "mnist");
    EXPECT_EQ(metadata["labels"]["elasticdl-job-name"], "mnist");
    EXPECT_EQ(metadata["labels"]["app"], "elasticdl");
    EXPECT_EQ((*object)["apiVersion"], "v1");
  }
  const auto type = [](const Json& pod) {
    return pod["metadata"]["labels"]["elasticdl-replica-type"];
  };
  EXPECT_EQ(type(objects.master_pod), "master");
  EXPECT_EQ(type(objects.worker_pod), "worker");
  EXPECT_EQ(type(objects.ps_pod), "ps");
  EXPECT_EQ(objects.master_pod["metadata"]["labels"][kIndexLabel], "0");
}

TEST(JobObjectsTest, ServiceSelectsTheMasterOnly) {
  const Json service = Make(Example()).service;
  EXPECT_EQ(service["spec"]["selector"],
            Json({{"elasticdl-job-name", "mnist"},
                  {"elasticdl-replica-type", "master"}}));
  EXPECT_EQ(Named(service["spec"]["ports"], "rpc")["port"], 50001);
  EXPECT_EQ(Named(service["spec"]["ports"], "http")["port"], 8080);
}

TEST(JobObjectsTest, SecretHoldsTokenAndTemplates) {
  JobOptions options = Example();
  const JobObjects objects = Make(options);
  const Json data = MakeSecret(options, objects)["stringData"];
  EXPECT_EQ(data["token"], "s3cret");
  EXPECT_EQ(Json::parse(data["worker-pod.json"].get<std::string>()),
            objects.worker_pod);
  EXPECT_EQ(Json::parse(data["ps-pod.json"].get<std::string>()),
            objects.ps_pod);
  EXPECT_FALSE(data.contains("populate_env_names"));
  // Another token must not be applied over it.
  EXPECT_EQ(MakeSecret(options, objects)["immutable"], true);
  options.populate_env_names = "AWS_.*";
  EXPECT_EQ(MakeSecret(options, objects)["stringData"]["populate_env_names"],
            "AWS_.*");
}

TEST(JobObjectsTest, MasterSeesTheSecretWorkersTheTokenOnly) {
  const JobObjects objects = Make(Example());
  const auto secret = [](const Json& pod) {
    return Named(pod["spec"]["volumes"], "elasticdl-job")["secret"];
  };
  EXPECT_EQ(secret(objects.master_pod)["secretName"], "elasticdl-job-mnist");
  EXPECT_FALSE(secret(objects.master_pod).contains("items"));
  EXPECT_EQ(secret(objects.worker_pod)["items"],
            Json::array({{{"key", "token"}, {"path", "token"}}}));
  const Json mounts = Container(objects.worker_pod)["volumeMounts"];
  EXPECT_EQ(Named(mounts, "elasticdl-job")["mountPath"], "/etc/elasticdl/job");
  EXPECT_EQ(Named(mounts, "elasticdl-job")["readOnly"], true);
  EXPECT_EQ(Named(Container(objects.master_pod)["volumeMounts"],
                  "elasticdl-state")["mountPath"],
            "/var/lib/elasticdl");
  EXPECT_TRUE(Named(objects.worker_pod["spec"]["volumes"], "elasticdl-state")
                  .is_null());
}

TEST(JobObjectsTest, OnlyTheMasterHasProbes) {
  const JobObjects objects = *MakeJobObjects(Example());
  const Json& master = objects.master_pod["spec"]["containers"][0];
  EXPECT_EQ(master["livenessProbe"]["httpGet"]["path"], "/healthz");
  EXPECT_EQ(master["startupProbe"]["httpGet"]["path"], "/healthz");
  EXPECT_EQ(master["readinessProbe"]["httpGet"]["path"], "/readyz");
  EXPECT_FALSE(
      objects.worker_pod["spec"]["containers"][0].contains("livenessProbe"));
}

TEST(JobObjectsTest, PodsDifferInWhatTheyRun) {
  JobOptions options = Example();
  options.master.priority_class = "high-priority";
  const JobObjects objects = Make(options);
  EXPECT_EQ(Container(objects.master_pod)["image"], "img:1");
  EXPECT_EQ(Container(objects.master_pod)["command"],
            Json::array({"elasticdl-master"}));
  EXPECT_EQ(Container(objects.master_pod)["args"],
            Json::array({"--job_name=mnist"}));
  EXPECT_EQ(Container(objects.worker_pod)["image"], "img:2");
  EXPECT_EQ(Container(objects.worker_pod)["imagePullPolicy"], "Always");
  EXPECT_EQ(objects.master_pod["spec"]["restartPolicy"], "OnFailure");
  EXPECT_EQ(objects.worker_pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(objects.master_pod["spec"]["priorityClassName"], "high-priority");
  EXPECT_FALSE(objects.worker_pod["spec"].contains("priorityClassName"));
  EXPECT_EQ(objects.worker_pod["spec"]["terminationGracePeriodSeconds"], 30);
  EXPECT_EQ(objects.worker_pod["spec"]["automountServiceAccountToken"], false);
  EXPECT_FALSE(
      objects.master_pod["spec"].contains("automountServiceAccountToken"));
}

TEST(JobObjectsTest, ServersKeepTheirLogWhenTheirContainerEnds) {
  const JobObjects objects = Make(Example());
  const Json& pod = objects.ps_pod;
  EXPECT_EQ(Named(pod["spec"]["volumes"], "elasticdl-state")["emptyDir"],
            Json::object());
  const Json mounts = Container(pod)["volumeMounts"];
  EXPECT_EQ(Named(mounts, "elasticdl-state")["mountPath"],
            "/var/lib/elasticdl");
  EXPECT_EQ(Named(mounts, "elasticdl-job")["readOnly"], true);
  EXPECT_EQ(Container(pod)["ports"],
            Json::array({{{"name", "ps"}, {"containerPort", 2222}}}));
  EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
}

TEST(JobObjectsTest, LimitsDefaultToTheRequest) {
  JobOptions options = Example();
  options.worker.request = {{"cpu", "1"}, {"memory", "1Gi"}};
  Json resources = Container(Make(options).worker_pod)["resources"];
  EXPECT_EQ(resources["requests"], Json({{"cpu", "1"}, {"memory", "1Gi"}}));
  EXPECT_EQ(resources["limits"], resources["requests"]);
  options.worker.limit = {{"cpu", "2"}};
  resources = Container(Make(options).worker_pod)["resources"];
  EXPECT_EQ(resources["limits"], Json({{"cpu", "2"}}));
  // The server refuses a GPU without a limit.
  options.worker.request["nvidia.com/gpu"] = "1";
  resources = Container(Make(options).worker_pod)["resources"];
  EXPECT_EQ(resources["limits"], Json({{"cpu", "2"}, {"nvidia.com/gpu", "1"}}));
}

TEST(JobObjectsTest, OneVolumePerClaimOrHostPath) {
  JobOptions options = Example();
  options.volumes = {{"c1", "", "", "/a", ""},
                     {"", "/data", "Directory", "/b", ""},
                     {"c1", "", "", "/c", "sub"},
                     {"", "/data", "", "/d", ""}};
  const JobObjects objects = Make(options);
  const Json& spec = objects.master_pod["spec"];
  EXPECT_EQ(spec["volumes"].size(), 2u + 2u);
  const Json claim = Named(spec["volumes"], "elasticdl-master-mnist-volume-0");
  EXPECT_EQ(claim["persistentVolumeClaim"]["claimName"], "c1");
  const Json host = Named(spec["volumes"], "elasticdl-master-mnist-volume-1");
  EXPECT_EQ(host["hostPath"], Json({{"path", "/data"}, {"type", "Directory"}}));
  const Json mounts = Container(objects.master_pod)["volumeMounts"];
  ASSERT_EQ(mounts.size(), 2u + 4u);
  EXPECT_EQ(mounts[4], Json({{"name", "elasticdl-master-mnist-volume-0"},
                             {"mountPath", "/c"},
                             {"subPath", "sub"}}));
  EXPECT_EQ(mounts[5]["name"], "elasticdl-master-mnist-volume-1");
  EXPECT_FALSE(Named(objects.worker_pod["spec"]["volumes"],
                     "elasticdl-worker-mnist-volume-0")
                   .is_null());
}

TEST(JobObjectsTest, VolumeNamesFitALabel) {
  JobOptions options = Example();
  options.job_name = std::string(44, 'a') + "--b";
  options.volumes = {{"c", "", "", "/a", ""}};
  const Json volumes = Make(options).worker_pod["spec"]["volumes"];
  const std::string name = volumes[1]["name"];
  EXPECT_LE(name.size(), 63u);
  EXPECT_THAT(name, ::testing::EndsWith("-volume-0"));
  EXPECT_THAT(name, Not(HasSubstr("--volume")));
}

TEST(JobObjectsTest, TwoMountsAtOnePathAreRefused) {
  JobOptions options = Example();
  options.volumes = {{"c1", "", "", "/a", ""}, {"c2", "", "", "/a", ""}};
  EXPECT_THAT(std::string(MakeJobObjects(options).status().message()),
              HasSubstr("mount_path=/a"));
  options.volumes = {{"c1", "", "", "/etc/elasticdl/job", ""}};
  EXPECT_FALSE(MakeJobObjects(options).ok());
}

TEST(JobObjectsTest, EnvironmentOfAllPodsWithTheUsersOnTop) {
  JobOptions options = Example();
  options.envs = {{"A", "x=y"}, {"POD_NAME", "mine"}, {"A", "z"}};
  const JobObjects objects = Make(options);
  for (const Json* pod :
       {&objects.master_pod, &objects.worker_pod, &objects.ps_pod}) {
    const Json env = Container(*pod)["env"];
    EXPECT_EQ(env.size(), 4u);
    EXPECT_EQ(Named(env, "MY_POD_IP")["valueFrom"]["fieldRef"]["fieldPath"],
              "status.podIP");
    EXPECT_EQ(Named(env, "POD_NAME"),
              Json({{"name", "POD_NAME"}, {"value", "mine"}}));
    EXPECT_EQ(Named(env, "A")["value"], "z");
  }
}

TEST(JobObjectsTest, WhatIsMissingIsNamed) {
  JobOptions options = Example();
  options.worker.image = "";
  EXPECT_EQ(MakeJobObjects(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options = Example();
  options.token = "";
  EXPECT_THAT(std::string(MakeJobObjects(options).status().message()),
              HasSubstr("token"));
}

TEST(JobObjectsTest, OwnerPatchNamesThePod) {
  const Json pod = {{"metadata", {{"name", "p"}, {"uid", "u"}}}};
  EXPECT_EQ(OwnerPatch(pod)["metadata"]["ownerReferences"],
            Json::array({{{"apiVersion", "v1"},
                          {"kind", "Pod"},
                          {"name", "p"},
                          {"uid", "u"}}}));
}

TEST(JobObjectsTest, Selectors) {
  EXPECT_EQ(JobSelector("j"), "elasticdl-job-name=j");
  EXPECT_EQ(MasterSelector("j"),
            "elasticdl-job-name=j,elasticdl-replica-type=master");
}

}  // namespace
}  // namespace elasticdl::cluster
