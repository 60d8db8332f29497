// Every flag of a job: type, default, a good and a bad value, who has it.
#include "elasticdl/flags/job_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::flags {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Who has a flag: t(rain), e(valuate), p(redict), m(aster), w(orker), s (ps).
struct Row {
  const char* name;
  const char* type;
  const char* default_value;
  const char* who;
  const char* good;
  // nullptr: any text will do.
  const char* bad;
};

constexpr char kAll[] = "tepmws";
constexpr char kTrain[] = "tmws";

const Row kRows[] = {
    // Shared by train, evaluate and predict.
    {"image", "string", "", kAll, "reg.example.com/a:1", "a b"},
    {"docker_image_prefix", "string", "", kAll, "gcr.io/project", "a b"},
    {"image_base", "string", "", kAll, "elasticdl:ci", "a b"},
    {"worker_image", "string", "", kAll, "a", "a;b"},
    {"job_name", "string", "", kAll, "test-mnist", nullptr},
    {"namespace", "string", "default", kAll, "kubemaker", "Kube_Maker"},
    {"num_workers", "int", "2", "tepmw", "4", "0"},
    {"num_ps_pods", "int", "0", "tepmw", "3", "1025"},
    {"master_resource_request", "string", "cpu=0.1,memory=1024Mi", kAll,
     "cpu=1,memory=2048Mi,ephemeral-storage=5000Mi", "cpu=1,memory=2048"},
    {"master_resource_limit", "string", "", kAll, "cpu=1", "cpu"},
    {"worker_resource_request", "string", "cpu=0.5,memory=4096Mi", kAll,
     "cpu=3,gpu=1", "gpu=0.5"},
    {"worker_resource_limit", "string", "", kAll, "memory=1Gi", "memory=1"},
    {"ps_resource_request", "string", "cpu=1,memory=4096Mi", kAll, "cpu=200m",
     "cpu=1,cpu=2"},
    {"ps_resource_limit", "string", "", kAll, "disk=1Gi", "disc=1Gi"},
    {"master_pod_priority", "string", "", kAll, "high-priority", "High!"},
    {"ps_pod_priority", "string", "", kAll, "high-priority", "a b"},
    {"worker_pod_priority", "string", "", kAll, "high=0.5", "1.5"},
    {"volume", "string", "", kAll,
     "claim_name=c,mount_path=/data;host_path=/d,"
     "type=Directory,mount_path=/d",
     "claim_name=c"},
    {"image_pull_policy", "string", "Always", kAll, "IfNotPresent",
     "Sometimes"},
    {"restart_policy", "string", "Never", kAll, "OnFailure", "Maybe"},
    {"envs", "string", "", kAll, "a=x=y,b=1,2", "novalue"},
    {"populate_env_names", "string", "", kAll, "A.*|B", "a("},
    {"extra_pypi_index", "string", "https://pypi.org/simple", kAll, "http://x",
     nullptr},
    {"num_minibatches_per_task", "int", "8", kAll, "2", "0"},
    {"cluster_spec", "string", "", kAll, "spec.py", nullptr},
    {"cluster_spec_json", "string", "", kAll, R"({"pod_spec":{}})", "{"},
    {"yaml", "string", "", kAll, "out.yaml", nullptr},
    {"force_use_kube_config_file", "bool", "false", kAll, "true", "maybe"},
    {"aux_params", "string", "", kAll, "disable_relaunch=true", "relaunch=1"},
    {"log_file_path", "string", "", kAll, "/tmp/log", nullptr},
    // Shared by master and worker.
    {"minibatch_size", "int", "64", kAll, "10", "0"},
    {"model_zoo", "string", "", kAll, "examples", nullptr},
    {"model_def", "string", "", kAll, "mnist.mnist_functional_api.custom_model",
     nullptr},
    {"feed", "string", "feed", kAll, "other.feed", nullptr},
    {"loss", "string", "loss", kAll, "CrossEntropy", nullptr},
    {"optimizer", "string", "optimizer", kAll, "SGD(lr=0.1,momentum=0.9)",
     nullptr},
    {"eval_metrics_fn", "string", "eval_metrics_fn", kAll, "m", nullptr},
    {"callbacks", "string", "callbacks", kAll, "c", nullptr},
    {"custom_data_reader", "string", "custom_data_reader", kAll, "r", nullptr},
    {"get_model_steps", "int", "1", kAll, "5", "0"},
    {"data_reader_params", "string", "", kAll, "reader_type=CSV;columns=['a']",
     "CSV"},
    {"distribution_strategy", "string", "", kAll, "AllreduceStrategy", "PS"},
    {"checkpoint_steps", "int", "0", kAll, "100", "-1"},
    {"checkpoint_dir", "string", "", kAll, "/tmp/c", nullptr},
    {"keep_checkpoint_max", "int", "0", kAll, "3", "3000000000"},
    {"output", "string", "", kAll, "/tmp/model", nullptr},
    {"log_level", "string", "INFO", kAll, "DEBUG", "LOUD"},
    // train.
    {"num_epochs", "int", "1", kTrain, "-1", "two"},
    {"grads_to_wait", "int", "1", kTrain, "2", "0"},
    {"training_data", "string", "", kTrain, "/data/train", nullptr},
    {"validation_data", "string", "", "temws", "/data/test", nullptr},
    {"evaluation_steps", "int", "0", kTrain, "50", "-5"},
    {"checkpoint_dir_for_init", "string", "", kAll, "/c/version-10", nullptr},
    {"sync_version_tolerance", "int", "0", kTrain, "2", "-1"},
    {"log_loss_steps", "int", "100", kTrain, "10", "x"},
    {"max_step", "int", "0", kTrain, "1000", "-1"},
    {"use_async", "bool", "false", kTrain, "true", "maybe"},
    {"lr_staleness_modulation", "bool", "false", kTrain, "true", "2"},
    {"ps_overlap", "bool", "true", kTrain, "false", "x"},
    {"ps_log", "string", "", "tms", "/tmp/ps", nullptr},
    {"ps_memory_limit", "string", "", "tms", "2Gi", "2"},
    {"ps_audit", "string", "", "tms", "/tmp/applied", nullptr},
    {"ps_snapshot_bytes", "int", "0", "tms", "4096", "-1"},
    {"embedding_max_rows", "int", "0", "tm", "5000", "-1"},
    {"embedding_eviction", "string", "age", "tm", "frequency", "lru"},
    {"embedding_min_count", "int", "1", "tm", "3", "0"},
    {"embedding_dtype", "string", "float32", "tm", "bfloat16", "int8"},
    {"embedding_layer_limit", "string", "2Mi", "tm", "1Gi", "2"},
    {"ps_backup", "int", "0", "tm", "1", "2"},
    {"need_elasticdl_job_service", "bool", "false", kTrain, "true", "-"},
    {"need_task_manager", "bool", "true", kTrain, "false", "x"},
    {"need_pod_manager", "bool", "true", kTrain, "false", "x"},
    {"task_fault_tolerance", "bool", "true", kTrain, "false", "x"},
    {"relaunch_timeout_worker", "bool", "false", kTrain, "true", "x"},
    {"job_command", "string", "", kTrain, "python train.py --x=1", nullptr},
    {"need_tf_config", "bool", "false", kTrain, "true", "x"},
    {"relaunch_on_worker_failure", "int", "1", kTrain, "3", "-1"},
    // Kept from older versions.
    {"model_params", "string", "", kAll, "hidden=64;dropout=0.5", "hidden"},
    {"evaluation_start_delay_secs", "int", "100", kTrain, "0", "-1"},
    {"evaluation_throttle_secs", "int", "0", kTrain, "30", "-1"},
    {"tensorboard_log_dir", "string", "", kAll, "/tmp/tb", nullptr},
    {"tensorboard_histograms", "int", "0", kAll, "100", "-1"},
    {"model_summary", "bool", "false", kAll, "true", "x"},
    {"timeline", "string", "", kAll, "/tmp/timeline.json", nullptr},
    {"log_format", "string", "text", kAll, "json", "xml"},
    // predict.
    {"prediction_data", "string", "", "pmw", "/data/predict", nullptr},
    {"prediction_outputs_processor", "string", "PredictionOutputsProcessor",
     "pmw", "Writer", nullptr},
    {"prediction_output_dir", "string", "", kAll, "/tmp/p", nullptr},
    // New.
    {"event_log", "string", "", kAll, "/tmp/e", nullptr},
    {"ledger_audit", "string", "", kAll, "/tmp/l", nullptr},
    {"shuffle", "bool", "true", kAll, "false", "x"},
    {"seed", "int", "0", kAll, "42", "-1"},
    {"task_max_failures", "int", "3", kAll, "5", "0"},
    {"task_timeout_secs", "float", "0", kAll, "2.5", "-1"},
    {"num_threads", "int", "0", kAll, "2", "-1"},
    {"device", "string", "auto", kAll, "cuda:1", "gpu"},
    {"gpu_sharing", "bool", "false", kAll, "true", "x"},
    {"precision", "string", "fp32", kAll, "bf16", "fp8"},
    {"memory_format", "string", "contiguous", kAll, "channels_last", "nhwc"},
    {"accumulation_steps", "int", "1", kTrain, "4", "0"},
    {"min_workers", "int", "0", kAll, "1", "-1"},
    {"max_workers", "int", "0", kAll, "8", "-1"},
    {"global_batch_size", "int", "0", kTrain, "256", "-1"},
    {"collective", "string", "auto", kAll, "shm", "nccl2"},
    {"grad_compression", "string", "none", kAll, "bf16", "int8"},
    {"worker_timeout", "float", "30", kAll, "1.5", "0"},
    {"step_timeout", "float", "300", kAll, "1.5", "0"},
    {"load_timeout", "float", "120", kAll, "1.5", "0"},
    {"background_join_mb", "float", "4", kAll, "0.5", "-1"},
    {"keep_state", "bool", "true", kAll, "false", "maybe"},
    {"join_bandwidth_mb", "float", "0", kAll, "100", "-1"},
    {"worker_start_timeout", "float", "120", kAll, "1.5", "0"},
    {"master_timeout", "float", "0", kAll, "300", "-1"},
    {"detach", "bool", "false", kAll, "true", "x"},
    {"slurm", "string", "", "tep", "--time=1:00", "gpu"},
    {"progress", "string", "auto", kAll, "plain", "loud"},
    {"failpoints", "string", "", kAll, "checkpoint.rename=kill@2", "a=b"},
    {"token_file", "string", "", kAll, "/tmp/t", nullptr},
    {"state_dir", "string", "", kAll, "/tmp/s", nullptr},
    // The programs of a job.
    {"port", "int", "50001", "m", "0", "65536"},
    {"pod_backend", "string", "none", "m", "slurm", "docker"},
    {"worker_id", "int", "-1", "w", "3", "-2"},
    {"master_addr", "string", "localhost:50001", "ws", "10.0.0.1:50001",
     "localhost"},
    {"worker_address", "string", "", "ws", "10.0.0.2", nullptr},
    {"ps_addrs", "string", "", "w", "a:2222,b:2222", "a,b"},
    {"job_type", "string", "", "w", "training_with_evaluation", "training"},
    {"http_port", "int", "0", "m", "8080", "65536"},
    {"pod_template_dir", "string", "", "m", "/etc/elasticdl/job", nullptr},
    {"compile_only", "bool", "false", "w", "true", "x"},
    {"show_devices", "bool", "false", "w", "true", "x"},
    {"port", "int", "2222", "s", "1", "x"},
    {"num_ps_pods", "int", "1", "s", "2", "x"},
    {"num_workers", "int", "1", "s", "2", "x"},
    {"ps_id", "int", "0", "s", "1023", "1024"},
    {"opt_type", "string", "unknown", "s", "Adam", nullptr},
    {"opt_args", "string", "", "s", "learning_rate=0.1;momentum=0.0;", "0.1"},
};

const std::pair<char, JobCommand> kCommands[] = {
    {'t', JobCommand::kTrain},   {'e', JobCommand::kEvaluate},
    {'p', JobCommand::kPredict}, {'m', JobCommand::kMaster},
    {'w', JobCommand::kWorker},  {'s', JobCommand::kPs}};

// The GPUs of this machine would change the number of workers.
[[maybe_unused]] const int no_gpus = setenv("CUDA_VISIBLE_DEVICES", "", 1);

struct Job {
  JobFlags flags;
  FlagSet set{"elasticdl test", "Test."};
  JobCommand command;

  explicit Job(JobCommand which) : command(which) {
    AddJobFlags(command, &flags, &set);
  }
  absl::Status Parse(std::vector<std::string> args) {
    if (command == JobCommand::kEvaluate || command == JobCommand::kPredict) {
      const bool predict = command == JobCommand::kPredict;
      args.insert(args.begin(),
                  {predict ? "--prediction_data=x" : "--validation_data=x",
                   "--checkpoint_dir_for_init=x"});
    }
    return set.Parse(args);
  }
  absl::Status ParseAll(const std::vector<std::string>& args) {
    absl::Status status = Parse(args);
    if (status.ok()) status = TranslateLegacyFlags(&flags, &set);
    if (status.ok()) status = ValidateJobFlags(command, &flags, &set);
    return status;
  }
};

// Calls f(row, command) for each command that has the row's flag.
template <typename F>
void ForEach(F f) {
  for (const Row& row : kRows) {
    for (const auto& [letter, command] : kCommands) {
      if (std::string(row.who).find(letter) == std::string::npos) continue;
      SCOPED_TRACE(std::string(row.name) + " of " + letter);
      f(row, command);
    }
  }
}

TEST(JobFlagsTest, TypesAndDefaults) {
  ForEach([](const Row& row, JobCommand command) {
    Job job(command);
    for (const FlagSet::Description& flag : job.set.Describe()) {
      if (flag.name != row.name) continue;
      EXPECT_EQ(flag.type, row.type);
      EXPECT_EQ(flag.default_value, row.default_value);
      return;
    }
    ADD_FAILURE() << "no such flag";
  });
}

TEST(JobFlagsTest, EachCommandHasItsFlagsAndNoOthers) {
  for (const auto& [letter, command] : kCommands) {
    std::set<std::string> expected;
    for (const Row& row : kRows) {
      if (std::string(row.who).find(letter) != std::string::npos) {
        expected.insert(row.name);
      }
    }
    std::set<std::string> present;
    for (const FlagSet::Description& flag : Job(command).set.Describe()) {
      if (flag.info.group != "Old") present.insert(flag.name);
    }
    EXPECT_EQ(present, expected) << letter;
  }
}

TEST(JobFlagsTest, GoodValuesRoundTrip) {
  ForEach([](const Row& row, JobCommand command) {
    const std::string arg = std::string("--") + row.name + "=" + row.good;
    Job first(command);
    const absl::Status status = first.Parse({arg});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(first.set.IsSet(row.name));
    EXPECT_THAT(first.set.ToArgs(), Contains(arg));
    Job second(command);
    ASSERT_TRUE(second.set.Parse(first.set.ToArgs()).ok());
    EXPECT_EQ(second.set.ToArgs(), first.set.ToArgs());
    Job third(command);
    const absl::Status unpacked = third.set.Unpack(first.set.Pack());
    ASSERT_TRUE(unpacked.ok()) << unpacked;
    EXPECT_EQ(third.set.ToArgs(), first.set.ToArgs());
  });
}

// What one program has checked, the next takes as it is.
TEST(JobFlagsTest, PackedFlagsAreNotCheckedAgain) {
  Job client(JobCommand::kTrain);
  ASSERT_TRUE(client.set
                  .Parse({"--model_def=a.b.c", "--training_data=\xff\\\"\n",
                          "--docker_image_prefix=reg/p"})
                  .ok());
  client.set.Unset("docker_image_prefix");
  JobFlags flags;
  FlagSet set("elasticdl-cluster", "");
  const absl::Status status = CheckJobFlags(
      JobCommand::kTrain, {PackedArgument(client.set)}, &flags, &set);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(flags.training_data, "\xff\\\"\n");
  EXPECT_EQ(flags.docker_image_prefix, "reg/p");
  EXPECT_FALSE(set.IsSet("docker_image_prefix"));
  // A check would have given the job a name.
  EXPECT_EQ(flags.job_name, "");
}

TEST(JobFlagsTest, MasterGetsWhatTheClientDecides) {
  Job client(JobCommand::kEvaluate);
  ASSERT_TRUE(client.Parse({"--seed=7"}).ok());
  const auto packed =
      PackedMasterArgument(client.set, {{"port", "0"}, {"job_name", "j"}});
  ASSERT_TRUE(packed.ok()) << packed.status();
  JobFlags flags;
  FlagSet set("elasticdl-master", "");
  ASSERT_TRUE(CheckJobFlags(JobCommand::kMaster, {*packed}, &flags, &set).ok());
  EXPECT_EQ(flags.seed, 7);
  EXPECT_EQ(flags.port, 0);
  EXPECT_EQ(flags.job_name, "j");
  // Workers that hang are replaced, evaluating or training.
  EXPECT_TRUE(flags.relaunch_timeout_worker);
  EXPECT_FALSE(PackedMasterArgument(client.set, {{"prot", "0"}}).ok());
}

TEST(JobFlagsTest, PackedFlagsOfAnotherVersionAreRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"values":{"no_such_flag":1},"given":[]})",
        R"({"values":{"seed":"x"},"given":[]})",
        R"({"values":{"seed":1},"given":[1]})"}) {
    JobFlags flags;
    FlagSet set("elasticdl-master", "");
    EXPECT_EQ(
        CheckJobFlags(JobCommand::kMaster,
                      {absl::StrCat("--packed_flags=", text)}, &flags, &set)
            .code(),
        absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(JobFlagsTest, ValuesMayFollowASpace) {
  ForEach([](const Row& row, JobCommand command) {
    // A flag whose value is optional takes none from the next word.
    if (std::string(row.name) == "slurm") return;
    Job job(command);
    const absl::Status status =
        job.Parse({std::string("--") + row.name, row.good});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(job.set.ToArgs(),
                Contains(std::string("--") + row.name + "=" + row.good));
  });
}

TEST(JobFlagsTest, BadValuesNameTheFlag) {
  ForEach([](const Row& row, JobCommand command) {
    if (row.bad == nullptr) return;
    Job job(command);
    const absl::Status status =
        job.Parse({std::string("--") + row.name + "=" + row.bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("--") + row.name));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(job.set.Report(status), 2);
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
  });
}

TEST(JobFlagsTest, MisspeltFlagsAreErrorsWithASuggestion) {
  ForEach([](const Row& row, JobCommand command) {
    Job job(command);
    const std::string wrong = std::string(row.name) + "q";
    const absl::Status status = job.Parse({"--" + wrong + "=1"});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("did you mean --") + row.name + "?"));
  });
}

TEST(JobFlagsTest, MasterTakesWhateverTheClientTakes) {
  const std::vector<std::string> names = Job(JobCommand::kMaster).set.names();
  const std::set<std::string> master(names.begin(), names.end());
  for (JobCommand command :
       {JobCommand::kTrain, JobCommand::kEvaluate, JobCommand::kPredict}) {
    for (const std::string& name : Job(command).set.names()) {
      // It is for the client alone: the job that it submits does not have it.
      if (name == "slurm") continue;
      EXPECT_EQ(master.count(name), 1u) << name;
    }
  }
}

TEST(JobFlagsTest, HelpIsReadable) {
  for (const auto& [letter, command] : kCommands) {
    const std::string help = Job(command).set.Help();
    const std::vector<std::string> lines = absl::StrSplit(help, '\n');
    EXPECT_LT(lines.size(), 260u) << letter;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 90u) << line;
    EXPECT_THAT(help, HasSubstr("--minibatch_size=N "));
    EXPECT_EQ(help.find("model_file"), std::string::npos);
  }
}

TEST(ValidateTest, RequiredFlags) {
  const struct {
    JobCommand command;
    std::vector<std::string> args;
    const char* says;
  } kCases[] = {
      {JobCommand::kTrain, {}, "missing required flag --model_def"},
      {JobCommand::kTrain,
       {"--model_def=a.b"},
       "missing required flag --training_data"},
      {JobCommand::kTrain,
       {"--model_def=a.b", "--training_data=x", "--image=i"},
       "missing required flag --job_name"},
      {JobCommand::kMaster,
       {"--model_def=a.b"},
       "missing required flag --training_data"},
      {JobCommand::kMaster,
       {"--model_def=a.b", "--prediction_data=x"},
       "--checkpoint_dir_for_init"},
      {JobCommand::kMaster,
       {"--model_def=a.b", "--validation_data=x"},
       "--checkpoint_dir_for_init"},
      {JobCommand::kMaster,
       {"--model_def=a.b", "--prediction_data=x", "--training_data=y"},
       "goes with neither"},
  };
  for (const auto& one : kCases) {
    Job job(one.command);
    const absl::Status status = job.ParseAll(one.args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
  for (JobCommand command : {JobCommand::kEvaluate, JobCommand::kPredict}) {
    JobFlags flags;
    FlagSet set("x", "y");
    AddJobFlags(command, &flags, &set);
    EXPECT_THAT(
        std::string(set.Parse({}).message()),
        HasSubstr(command == JobCommand::kEvaluate
                      ? "--validation_data, --checkpoint_dir_for_init"
                      : "--prediction_data, --checkpoint_dir_for_init"));
  }
}

const std::vector<std::string> kGood = {"--model_def=a.b.c",
                                        "--training_data=x"};

absl::Status Train(std::vector<std::string> args, Job* job) {
  args.insert(args.begin(), kGood.begin(), kGood.end());
  return job->ParseAll(args);
}

TEST(ValidateTest, RulesBetweenFlags) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"--max_workers=1"}, "--max_workers=1 is less than --num_workers=2"},
      {{"--min_workers=3"}, "--min_workers=3 is more than --num_workers=2"},
      {{"--global_batch_size=100", "--minibatch_size=64"},
       "--global_batch_size=100 is no multiple of --minibatch_size=64"},
      {{"--accumulation_steps=2", "--global_batch_size=128"},
       "give one of the two"},
      {{"--accumulation_steps=2", "--num_ps_pods=1"},
       "--accumulation_steps=2 does not work with parameter servers"},
      {{"--minibatch_size=16777215", "--accumulation_steps=2"},
       "33554430 records in a step of one worker; at most 16777215"},
      {{"--precision=fp16", "--device=cpu"},
       "--precision=fp16 is for GPUs; on the CPU use --precision=bf16"},
      {{"--precision=fp16", "--num_ps_pods=1"},
       "where jobs with parameter servers compute, use --precision=bf16"},
      {{"--device=cuda", "--num_ps_pods=1"},
       "--device=cuda does not work with parameter servers yet"},
      {{"--num_workers=65537"},
       "--num_workers=65537: at most 65536 workers can train together"},
      {{"--max_workers=70000"},
       "--max_workers=70000: at most 65536 workers can train together"},
      {{"--minibatch_size=16777216"}, "--minibatch_size"},
      {{"--global_batch_size=16777216"}, "--global_batch_size"},
      {{"--distribution_strategy=Local", "--num_workers=2"}, "one worker"},
      {{"--ps_backup=1"}, "--ps_backup=1 needs parameter servers"},
      {{"--ps_backup=1", "--num_ps_pods=1"}, "needs --num_ps_pods=2 or more"},
      {{"--yaml=x"}, "--yaml needs --image"},
      {{"--relaunch_timeout_worker=false", "--task_timeout_secs=9"},
       "--task_timeout_secs=9 contradicts --relaunch_timeout_worker=false"},
      {{"--tensorboard_histograms=10"}, "needs --tensorboard_log_dir"},
      {{"--tensorboard_histograms=10", "--tensorboard_log_dir=t",
        "--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=1"},
       "AllreduceStrategy or Local has histograms"},
      {{"--job_name=a/b"}, "--job_name: 'a/b'"},
      {{"--job_name=..", "--num_workers=1"}, "--job_name: '..'"},
      {{"--job_name=A_b", "--image=i"}, "--job_name: 'A_b' is no Kubernetes"},
      {{"--image=i", "--job_name=" + std::string(47, 'a')}, "at most 46"},
  };
  for (const auto& [args, says] : kCases) {
    Job job(JobCommand::kTrain);
    const absl::Status status = Train(args, &job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
}

TEST(ValidateTest, RequestAboveItsLimitIsRefused) {
  for (const char* type : {"master", "worker", "ps"}) {
    const auto flag = [&](const std::string& what, const std::string& value) {
      return absl::StrCat("--", type, "_resource_", what, "=", value);
    };
    const std::vector<std::string> cluster = {"--image=i", "--job_name=j"};
    for (const auto& [request, limit] :
         {std::pair("cpu=2", "cpu=1500m"), std::pair("cpu=1001m", "cpu=1"),
          std::pair("cpu=1,memory=2Gi", "cpu=1,memory=2047Mi"),
          std::pair("gpu=2", "gpu=1")}) {
      std::vector<std::string> args = cluster;
      args.insert(args.end(), {flag("request", request), flag("limit", limit)});
      Job job(JobCommand::kTrain);
      const absl::Status status = Train(args, &job);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << request;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("--", type, "_resource_limit")));
      std::vector<std::string> good = cluster;
      good.insert(good.end(), {flag("request", limit), flag("limit", request)});
      Job fits(JobCommand::kTrain);
      EXPECT_TRUE(Train(good, &fits).ok());
    }
  }
}

TEST(ValidateTest, WhichJobsHaveParameterServers) {
  const auto servers = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = kGood;
    args.insert(args.end(), {"--job_name=j", "--num_ps_pods=1"});
    args.insert(args.end(), more.begin(), more.end());
    JobFlags flags;
    FlagSet set("test", "");
    const absl::Status status =
        CheckJobFlags(JobCommand::kTrain, args, &flags, &set);
    EXPECT_TRUE(status.ok()) << status;
    return flags.HasServers();
  };
  EXPECT_TRUE(servers({}));
  EXPECT_TRUE(servers({"--image=reg.example.com/a:1",
                       "--distribution_strategy=ParameterServerStrategy"}));
  EXPECT_TRUE(servers({"--validation_data=/v"}));
  EXPECT_FALSE(servers({"--distribution_strategy=AllreduceStrategy"}));
  EXPECT_FALSE(servers(
      {"--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=0"}));
  EXPECT_FALSE(servers({"--job_command=true"}));
}

TEST(ValidateTest, Corrections) {
  Job sync(JobCommand::kTrain);
  ASSERT_TRUE(Train({"--num_ps_pods=1", "--get_model_steps=3"}, &sync).ok());
  EXPECT_EQ(sync.flags.get_model_steps, 1);
  EXPECT_THAT(sync.set.hints(), Contains(HasSubstr("--get_model_steps")));

  Job async(JobCommand::kTrain);
  ASSERT_TRUE(
      Train({"--num_ps_pods=1", "--use_async", "--grads_to_wait=2"}, &async)
          .ok());
  EXPECT_EQ(async.flags.grads_to_wait, 1);
  EXPECT_THAT(async.set.ToArgs(), Contains("--grads_to_wait=1"));

  Job no_ps(JobCommand::kTrain);
  ASSERT_TRUE(
      Train({"--distribution_strategy=parameterserverstrategy"}, &no_ps).ok());
  EXPECT_EQ(no_ps.flags.Strategy(), "AllreduceStrategy");
  EXPECT_THAT(no_ps.set.hints(), Contains(HasSubstr("AllreduceStrategy")));

  Job both(JobCommand::kTrain);
  ASSERT_TRUE(Train({"--distribution_strategy=AllreduceStrategy",
                     "--num_ps_pods=2", "--use_async"},
                    &both)
                  .ok());
  EXPECT_THAT(both.set.hints(),
              Contains("--use_async has no effect under AllreduceStrategy; "
                       "--distribution_strategy=ParameterServerStrategy makes "
                       "it a job with parameter servers"));

  Job rows(JobCommand::kTrain);
  ASSERT_TRUE(
      Train({"--num_ps_pods=1", "--embedding_max_rows=1500"}, &rows).ok());
  EXPECT_THAT(rows.set.hints(), Contains(HasSubstr("which makes 2048 rows")));

  Job local(JobCommand::kTrain);
  ASSERT_TRUE(Train({"--distribution_strategy=Local"}, &local).ok());
  EXPECT_EQ(local.flags.num_workers, 1);

  Job checkpoint(JobCommand::kTrain);
  ASSERT_TRUE(Train({"--checkpoint_steps=2"}, &checkpoint).ok());
  EXPECT_EQ(checkpoint.flags.checkpoint_dir, "checkpoint_dir");

  Job evaluation(JobCommand::kTrain);
  ASSERT_TRUE(Train({"--evaluation_steps=2"}, &evaluation).ok());
  EXPECT_THAT(evaluation.set.hints(), Contains(HasSubstr("no effect")));
}

TEST(ValidateTest, DerivedValues) {
  JobFlags flags;
  EXPECT_EQ(flags.Strategy(), "AllreduceStrategy");
  EXPECT_EQ(flags.JobType(), "training_only");
  flags.num_ps_pods = 1;
  EXPECT_EQ(flags.Strategy(), "ParameterServerStrategy");
  flags.validation_data = "v";
  EXPECT_EQ(flags.JobType(), "evaluation_only");
  flags.training_data = "t";
  EXPECT_EQ(flags.JobType(), "training_with_evaluation");
  flags = {};
  flags.prediction_data = "p";
  EXPECT_EQ(flags.JobType(), "prediction_only");
  flags.job_type = "training_only";
  EXPECT_EQ(flags.JobType(), "training_only");
  EXPECT_FALSE(flags.RunsJobCommand());
  flags.job_command = "x";
  EXPECT_TRUE(flags.RunsJobCommand());
  flags.need_elasticdl_job_service = true;
  EXPECT_FALSE(flags.RunsJobCommand());
}

TEST(ValidateTest, JobCommandNeedsNoModel) {
  Job job(JobCommand::kTrain);
  EXPECT_TRUE(job.ParseAll({"--job_command=python x.py"}).ok());
}

TEST(ModelParamsTest, KeysThatTheModelDoesNotMentionAreHinted) {
  test::TempDir zoo;
  ASSERT_TRUE(MakeDirectories(zoo.Path("a")).ok());
  ASSERT_TRUE(
      WriteFileAtomic(zoo.Path("a/b.cc"), "p.Get(\"hidden\", 3);").ok());
  ASSERT_TRUE(WriteFileAtomic(zoo.Path("a/c.h"), "p.Get(\"lr\", 0.1);").ok());
  const auto hints = [&](const std::string& def, const std::string& params) {
    JobFlags flags;
    flags.model_zoo = zoo.path();
    flags.model_def = def;
    flags.model_params = params;
    FlagSet set("elasticdl train", "");
    HintModelParams(flags, &set);
    return set.hints();
  };
  EXPECT_TRUE(hints("a.b.custom_model", "hidden=4;lr=0.5").empty());
  const auto misspelt = hints("a.b.custom_model", "hiden=4;lr=0.5");
  ASSERT_EQ(misspelt.size(), 1u);
  EXPECT_THAT(misspelt[0], HasSubstr("'hiden'"));
  EXPECT_TRUE(hints("a.none.custom_model", "x=1").empty());
  EXPECT_TRUE(hints("net.pt", "x=1").empty());
  EXPECT_THAT(hints("a.b.custom_model", "hidden=4,lr=0.5"),
              ElementsAre("--model_params: hidden is '4,lr=0.5', because pairs "
                          "are separated by ';'; did you mean "
                          "'hidden=4;lr=0.5'?"));
  EXPECT_TRUE(hints("a.b.custom_model", "hidden=4,5;lr=0.5").empty());
  EXPECT_TRUE(hints("a.b.custom_model", "hidden='4,lr=0.5'").empty());
  EXPECT_TRUE(hints("a.b.custom_model", "hidden=f(x=4,y=5)").empty());
}

TEST(ValidateTest, DefaultJobName) {
  const absl::Time now = absl::FromCivil(absl::CivilSecond(2026, 7, 5, 1, 2, 3),
                                         absl::LocalTimeZone()) +
                         absl::Milliseconds(400);
  EXPECT_EQ(DefaultJobName("mnist.mnist_functional_api.custom_model", now),
            "mnist-functional-api-0705-010203-40");
  EXPECT_EQ(DefaultJobName("models/Net_2.pt", now), "net-2-0705-010203-40");
  EXPECT_EQ(DefaultJobName("net.pt", now), "net-0705-010203-40");
  EXPECT_EQ(DefaultJobName("", now), "job-0705-010203-40");
  EXPECT_LE(DefaultJobName(std::string(80, 'a') + ".f", now).size(), 46u);
}

TEST(ParseJobFlagsTest, NamesTheJob) {
  JobFlags flags;
  FlagSet set("elasticdl train", "");
  EXPECT_EQ(ParseJobFlags(JobCommand::kTrain, kGood, &flags, &set), -1);
  EXPECT_THAT(flags.job_name, ::testing::StartsWith("b-"));
  EXPECT_TRUE(set.IsSet("job_name"));
  JobFlags worker;
  FlagSet worker_set("elasticdl-worker", "");
  EXPECT_EQ(ParseJobFlags(JobCommand::kWorker, {"--worker_id=1"}, &worker,
                          &worker_set),
            -1);
  EXPECT_EQ(worker.worker_id, 1);
}

}  // namespace
}  // namespace elasticdl::flags
