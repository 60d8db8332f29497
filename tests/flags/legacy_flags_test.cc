// Old names: renamed flags, translated flags, flags without effect, and the
// command lines of the old tutorials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/flags/job_flags.h"
#include "support/temp_dir.h"

namespace elasticdl::flags {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Job {
  JobFlags flags;
  FlagSet set{"elasticdl test", "Test."};
  JobCommand command;

  explicit Job(JobCommand which = JobCommand::kTrain) : command(which) {
    AddJobFlags(command, &flags, &set);
  }
  absl::Status Parse(const std::vector<std::string>& args) {
    absl::Status status = set.Parse(args);
    if (status.ok()) status = TranslateLegacyFlags(&flags, &set);
    return status;
  }
};

TEST(LegacyFlagsTest, Renames) {
  const struct {
    const char* old_arg;
    const char* new_arg;
    JobCommand command;
  } kRenames[] = {
      {"--input_fn=f", "--feed=f", JobCommand::kTrain},
      {"--dataset_fn=f", "--feed=f", JobCommand::kTrain},
      {"--train_data_dir=d", "--training_data=d", JobCommand::kTrain},
      {"--training_data_dir=d", "--training_data=d", JobCommand::kTrain},
      {"--evaluation_data_dir=d", "--validation_data=d", JobCommand::kTrain},
      {"--evaluation_data=d", "--validation_data=d", JobCommand::kMaster},
      {"--prediction_data_dir=d", "--prediction_data=d", JobCommand::kMaster},
      {"--num_epoch=3", "--num_epochs=3", JobCommand::kTrain},
      {"--num_worker=3", "--num_workers=3", JobCommand::kTrain},
      {"--init_from_checkpoint=c", "--checkpoint_dir_for_init=c",
       JobCommand::kTrain},
      {"--checkpoint_filename_for_init=c", "--checkpoint_dir_for_init=c",
       JobCommand::kTrain},
      {"--get_model_frequency=2", "--get_model_steps=2", JobCommand::kTrain},
      {"--num_ps=2", "--num_ps_pods=2", JobCommand::kTrain},
  };
  for (const auto& one : kRenames) {
    Job job(one.command);
    const absl::Status status = job.Parse({one.old_arg});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(job.set.ToArgs(), ElementsAre(one.new_arg));
    ASSERT_EQ(job.set.hints().size(), 1u) << one.old_arg;
    EXPECT_THAT(job.set.hints()[0], HasSubstr(" is now --"));
  }
}

TEST(LegacyFlagsTest, TranslationsPassOnPresentNames) {
  const std::pair<std::vector<std::string>, std::vector<std::string>>
      kTranslations[] = {
          {{"--image_name=i"}, {"--image=i"}},
          {{"--image_base=i"}, {"--image=i"}},
          {{"--image_base=i", "--image=j"}, {"--image=j"}},
          {{"--docker_image_prefix=r", "--image=j"}, {"--image=j"}},
          {{"--docker_image_prefix=r", "--image_base=i"}, {}},
          {{"--records_per_task=100", "--minibatch_size=10"},
           {"--minibatch_size=10", "--num_minibatches_per_task=10"}},
          {{"--record_per_task=101", "--minibatch_size=10"},
           {"--minibatch_size=10", "--num_minibatches_per_task=11"}},
          {{"--records_per_task=1"}, {"--num_minibatches_per_task=1"}},
          {{"--records_per_task=64", "--num_minibatches_per_task=5"},
           {"--num_minibatches_per_task=5"}},
          {{"--volume_name=v", "--mount_path=/d"},
           {"--volume=claim_name=v,mount_path=/d"}},
          {{"--volumn_name=v", "--mount_path=/d"},
           {"--volume=claim_name=v,mount_path=/d"}},
          {{"--worker_cpu_request=2", "--worker_memory_limit=1Gi"},
           {"--worker_resource_request=cpu=2,memory=4096Mi",
            "--worker_resource_limit=memory=1Gi"}},
          {{"--master_cpu_request=500m", "--master_memory_request=1Gi",
            "--master_cpu_limit=1"},
           {"--master_resource_request=cpu=500m,memory=1Gi",
            "--master_resource_limit=cpu=1"}},
          {{"--custom_training_loop"}, {"--need_elasticdl_job_service=false"}},
          {{"--model_def=a.b.custom_model", "--model_class=Net"},
           {"--model_def=a.b.Net"}},
          {{"--model_file=net.pt"}, {"--model_def=net.pt"}},
          {{"--model_def=dir/net.pt"}, {"--model_def=dir/net.pt"}},
      };
  for (const auto& [old_args, new_args] : kTranslations) {
    Job job;
    const absl::Status status = job.Parse(old_args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(job.set.ToArgs(), new_args);
  }
}

TEST(LegacyFlagsTest, JobsWithAnImageHaveAModelZoo) {
  const std::pair<std::vector<std::string>, std::string> kZoos[] = {
      {{"--image=i", "--model_def=a.b.fn"}, "/model_zoo"},
      {{"--image_base=i", "--model_def=a.b.fn"}, "/model_zoo"},
      {{"--image=i", "--model_def=a/b.cc"}, "/model_zoo"},
      {{"--image=i", "--model_def=net.pt"}, "/model_zoo"},
      {{"--image=i", "--model_def=a.b.fn", "--model_zoo=/z"}, "/z"},
      {{"--image=i", "--model_def=/z/b.cc"}, "/z"},
      {{"--image=i", "--job_command=true"}, ""},
      {{"--docker_image_prefix=r", "--model_def=a.b.fn"}, ""},
      {{"--model_def=a.b.fn"}, ""},
  };
  for (const auto& [args, zoo] : kZoos) {
    Job job;
    const absl::Status status = job.Parse(args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(job.flags.model_zoo, zoo) << args[0] << " " << args[1];
  }
}

TEST(LegacyFlagsTest, ModelPaths) {
  const struct {
    std::vector<std::string> args;
    const char* zoo;
    const char* def;
  } kCases[] = {
      {{"--model_file=elasticdl/python/examples/mnist_functional_api.py"},
       "elasticdl/python/examples",
       "mnist_functional_api.custom_model"},
      {{"--model_file=a/x.cc", "--model_class=Net"}, "a", "x.Net"},
      {{"--model_file=x.cc"}, ".", "x.custom_model"},
      {{"--model_file=/x.cc"}, "/", "x.custom_model"},
      {{"--model_file=../v1.2/x.cc"}, "../v1.2", "x.custom_model"},
      {{"--model_def=elasticdl/python/examples/mnist_subclass"},
       "elasticdl/python/examples",
       "mnist_subclass.custom_model"},
      {{"--model_def=a/b/", "--model_zoo=zoo"}, "zoo", "a.b.custom_model"},
      {{"--model_def=x.cc", "--model_zoo=zoo"}, "zoo", "x.custom_model"},
      {{"--model_def=m.f", "--model_zoo=zoo"}, "zoo", "m.f"},
  };
  for (const auto& one : kCases) {
    Job job;
    const absl::Status status = job.Parse(one.args);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(job.flags.model_zoo, one.zoo);
    EXPECT_EQ(job.flags.model_def, one.def);
    // What was typed, and what it has become.
    for (const std::string& hint : job.set.hints()) {
      EXPECT_EQ(hint, absl::StrCat(one.args[0], " is now --model_zoo=", one.zoo,
                                   " --model_def=", one.def));
    }
  }
}

TEST(LegacyFlagsTest, ModelFolder) {
  test::TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.Path("mnist")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.Path("mnist/mnist.cc"), "").ok());
  Job job;
  ASSERT_TRUE(job.Parse({"--model_def=" + dir.Path("mnist")}).ok());
  EXPECT_EQ(job.flags.model_zoo, dir.path());
  EXPECT_EQ(job.flags.model_def, "mnist.mnist.custom_model");
}

TEST(LegacyFlagsTest, WhatCannotBeTranslatedIsAnError) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"--volume_name=v"}, "--volume_name and --mount_path"},
      {{"--mount_path=/d"}, "--volume_name and --mount_path"},
      {{"--model_file=a.cc", "--model_def=b.c"}, "one of them is enough"},
      {{"--model_file=a/b.c.cc"}, "has dots in it"},
      {{"--worker_cpu_request=many"}, "--worker_cpu_request: cpu=many"},
      {{"--records_per_task=0"}, "--records_per_task: '0' is too small"},
  };
  for (const auto& [args, says] : kCases) {
    Job job;
    const absl::Status status = job.Parse(args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

TEST(LegacyFlagsTest, WithoutEffectButAccepted) {
  for (JobCommand command :
       {JobCommand::kTrain, JobCommand::kMaster, JobCommand::kWorker}) {
    for (const char* name : {"codec_type",
                             "codec_file",
                             "learning_rate_scheduler",
                             "use_go_ps",
                             "repository",
                             "push_image",
                             "docker_base_url",
                             "docker_tlscert",
                             "docker_tlskey",
                             "embedding_service_endpoint",
                             "collective_communicator_service_name",
                             "eval_cpu_request",
                             "eval_cpu_limit",
                             "eval_memory_request",
                             "eval_memory_limit",
                             "ps_image",
                             "num_evaluator",
                             "chief_resource_request",
                             "chief_resource_limit",
                             "evaluator_resource_request",
                             "evaluator_resource_limit"}) {
      Job job(command);
      const std::string arg = std::string("--") + name + "=1";
      const absl::Status status = job.Parse({arg});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(job.set.hints(),
                  ElementsAre(HasSubstr(" no longer has any effect")));
      EXPECT_THAT(job.set.ToArgs(), IsEmpty());
    }
  }
}

// The tutorials of 2019, as they were typed.
TEST(TutorialsTest, MasterAndWorkerByHand) {
  JobFlags master;
  FlagSet master_set("elasticdl-master", "");
  EXPECT_EQ(
      ParseJobFlags(
          JobCommand::kMaster,
          {"--model_file=elasticdl/python/examples/mnist_functional_api.py",
           "--job_name=test", "--training_data_dir=/data/mnist/train",
           "--evaluation_data_dir=/data/mnist/test", "--records_per_task=100",
           "--num_epochs=2", "--codec_type=tf_example", "--checkpoint_steps=2",
           "--grads_to_wait=2", "--minibatch_size=10", "--log_level=INFO"},
          &master, &master_set),
      -1);
  EXPECT_EQ(master.model_def, "mnist_functional_api.custom_model");
  EXPECT_EQ(master.num_minibatches_per_task, 10);
  EXPECT_EQ(master.port, 50001);
  EXPECT_EQ(master.JobType(), "training_with_evaluation");

  JobFlags worker;
  FlagSet worker_set("elasticdl-worker", "");
  EXPECT_EQ(
      ParseJobFlags(
          JobCommand::kWorker,
          {"--worker_id=1",
           "--model_file=elasticdl/python/examples/mnist_functional_api.py",
           "--codec_type=tf_example", "--master_addr=localhost:50001",
           "--log_level=INFO"},
          &worker, &worker_set),
      -1);
  EXPECT_EQ(worker.model_zoo, "elasticdl/python/examples");
  EXPECT_EQ(worker.master_addr, "localhost:50001");
}

TEST(TutorialsTest, Submissions) {
  Job gke;
  absl::Status status = gke.Parse(
      {"--job_name=low-prio-job",
       "--model_def=elasticdl/python/examples/mnist_subclass",
       "--training_data_dir=/data/train", "--evaluation_data_dir=/data/test",
       "--master_pod_priority=high-priority",
       "--worker_pod_priority=low-priority", "--num_epochs=1",
       "--minibatch_size=10", "--records_per_task=100", "--num_workers=2",
       "--checkpoint_steps=2", "--master_resource_request=cpu=1,memory=1024Mi",
       "--master_resource_limit=cpu=1,memory=1024Mi",
       "--worker_resource_request=cpu=3,memory=4096Mi",
       "--worker_resource_limit=cpu=3,memory=4096Mi", "--grads_to_wait=2",
       "--volume=volume_name=data-volume,mount_path=/data,claim_name=claim",
       "--log_level=INFO", "--docker_image_prefix=gcr.io/project"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(ValidateJobFlags(gke.command, &gke.flags, &gke.set).ok());
  EXPECT_THAT(gke.set.ToArgs(), Each(Not(StartsWith("--docker"))));
  EXPECT_TRUE(gke.flags.OnCluster());
  EXPECT_EQ(gke.flags.docker_image_prefix, "gcr.io/project");
  EXPECT_EQ(gke.flags.image, "");

  Job prebuilt;
  status = prebuilt.Parse(
      {"--image_base=registry.example.com/user/elasticdl:mnist",
       "--model_zoo=/model_zoo",
       "--model_def=mnist_functional_api.mnist_functional_api.custom_model",
       "--training_data=/data/mnist/train",
       "--validation_data=/data/mnist/test", "--num_epochs=2",
       "--num_minibatches_per_task=2",
       "--worker_resource_request=cpu=1,memory=2048Mi,ephemeral-storage=5000Mi",
       "--checkpoint_steps=10", "--grads_to_wait=2", "--job_name=test-mnist",
       "--image_pull_policy=Always", "--namespace=kubemaker"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(
      ValidateJobFlags(prebuilt.command, &prebuilt.flags, &prebuilt.set).ok());
  EXPECT_EQ(prebuilt.flags.image, "registry.example.com/user/elasticdl:mnist");

  // `train` of the client's design, without its strategy.
  Job zoo;
  status =
      zoo.Parse({"--image=registry.example.com/bright/elasticdl-wnd:1.0",
                 "--model_def=my_model_repo.models.wnd.custom_model",
                 "--training_data=/data/mnist/train",
                 "--validation_data=/data/mnist/test", "--num_epochs=2",
                 "--minibatch_size=64", "--num_minibatches_per_task=2",
                 "--num_ps_pods=0", "--num_workers=1", "--evaluation_steps=50",
                 "--grads_to_wait=1", "--job_name=test-mnist",
                 "--master_resource_request=cpu=0.2,memory=1024Mi",
                 "--master_resource_limit=cpu=1,memory=2048Mi",
                 "--worker_resource_request=cpu=0.4,memory=1024Mi",
                 "--worker_resource_limit=cpu=1,memory=2048Mi",
                 "--ps_resource_request=cpu=0.2,memory=1024Mi",
                 "--ps_resource_limit=cpu=1,memory=2048Mi"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(ValidateJobFlags(zoo.command, &zoo.flags, &zoo.set).ok());
  EXPECT_THAT(zoo.set.ToArgs(), Contains("--model_zoo=/model_zoo"));
  EXPECT_THAT(zoo.set.hints(), IsEmpty());
}

}  // namespace
}  // namespace elasticdl::flags
