#include "elasticdl/flags/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "elasticdl/flags/job_flags.h"

namespace elasticdl::flags {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::HasSubstr;

std::optional<SlurmAllocation> Find(const Variables& variables) {
  return FindSlurmAllocation([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(SlurmAllocationTest, NoneWithoutAJob) {
  EXPECT_FALSE(Find({{"SLURM_CONF", "/etc/slurm.conf"}}).has_value());
}

TEST(SlurmAllocationTest, TasksAndCpus) {
  const auto found = Find({{"SLURM_JOB_ID", "12"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_CPUS_PER_TASK", "3"},
                           {"SLURM_JOB_NUM_NODES", "1"},
                           {"SLURM_JOB_NODELIST", "n1"}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->job_id, "12");
  EXPECT_EQ(found->cpus_per_task, 3);
  EXPECT_EQ(found->only_node, "n1");
  EXPECT_EQ(found->restarts, 0);
  EXPECT_FALSE(found->in_step);
  EXPECT_EQ(found->Workers(0), 4);
  EXPECT_EQ(found->Workers(1), 3);
  EXPECT_EQ(found->Workers(9), 1);
}

TEST(SlurmAllocationTest, OwnersAreJobsOfAClusterHoweverOftenStarted) {
  const auto owner = [](const std::string& job, const std::string& cluster,
                        const std::string& restarts) {
    return Find({{"SLURM_JOB_ID", job},
                 {"SLURM_CLUSTER_NAME", cluster},
                 {"SLURM_RESTART_COUNT", restarts}})
        ->Owner();
  };
  EXPECT_EQ(owner("12", "a", ""), owner("12", "a", "2"));
  EXPECT_NE(owner("12", "a", "1"), owner("13", "a", "1"));
  EXPECT_NE(owner("12", "a", "1"), owner("12", "b", "1"));
}

TEST(SlurmAllocationTest, WithoutNtasksOnePerNode) {
  const auto found = Find({{"SLURM_JOB_ID", "1"},
                           {"SLURM_JOB_NUM_NODES", "3"},
                           {"SLURM_JOB_NODELIST", "n[1-3]"}});
  EXPECT_EQ(found->Workers(0), 3);
  EXPECT_EQ(found->only_node, "");
}

TEST(SlurmAllocationTest, OneWorkerPerGpu) {
  Variables variables = {{"SLURM_JOB_ID", "1"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_JOB_NUM_NODES", "2"},
                         {"SLURM_GPUS_ON_NODE", "4"}};
  EXPECT_EQ(Find(variables)->Workers(1), 8);
  variables["SLURM_GPUS"] = "a100:6";
  EXPECT_EQ(Find(variables)->Workers(0), 6);
}

// salloc --gres sets no variable for them. Lines of Slurm 22.05.
TEST(SlurmAllocationTest, GpusThatOnlyTheControllerKnows) {
  const auto gpus = [](const std::string& line) {
    SlurmAllocation found = *Find({{"SLURM_JOB_ID", "1"}});
    AddSlurmFacts("   JOB_GRES=" + line +
                      "\n     Nodes=n1 CPU_IDs=0-2 Mem=0 GRES=gpu:2(IDX:0-1)\n"
                      "   TresPerNode=gres:gpu:2\n",
                  "", found);
    return found.gpus;
  };
  EXPECT_EQ(gpus("gpu:2"), 2);
  EXPECT_EQ(gpus("gpu:a100:4"), 4);
  EXPECT_EQ(gpus("gpu:a100:4,gpu:v100:2,shard:16"), 6);
  EXPECT_EQ(gpus("gpu:2(S:0-1)"), 2);
  EXPECT_EQ(gpus("(null)"), 0);
  EXPECT_EQ(gpus(""), 0);
  // What a variable has told counts.
  SlurmAllocation found = *Find({{"SLURM_JOB_ID", "1"}, {"SLURM_GPUS", "3"}});
  AddSlurmFacts("JOB_GRES=gpu:8", "", found);
  EXPECT_EQ(found.gpus, 3);
}

constexpr char kTwoThreads[] =
    "NodeName=n1 Arch=x86_64 CoresPerSocket=4\n"
    "   CPUAlloc=4 CPUEfctv=16 CPUTot=16 CPULoad=18.05\n"
    "   RealMemory=8000 AllocMem=8000 FreeMem=1 Sockets=2 Boards=1\n"
    "   State=MIXED ThreadsPerCore=2 TmpDisk=0 Weight=1\n";

// A step gets whole cores, so four tasks on two cores are two steps.
TEST(SlurmAllocationTest, HardwareThreads) {
  Variables variables = {{"SLURM_JOB_ID", "1"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_JOB_CPUS_PER_NODE", "4"}};
  const auto find = [&] {
    SlurmAllocation found = *Find(variables);
    AddSlurmFacts("", kTwoThreads, found);
    return found;
  };
  EXPECT_EQ(Find(variables)->Workers(0), 4);
  EXPECT_EQ(find().StepCpus(), 2);
  EXPECT_EQ(find().Workers(0), 2);
  EXPECT_EQ(find().Workers(1), 1);
  variables["SLURM_CPUS_PER_TASK"] = "3";
  variables["SLURM_JOB_CPUS_PER_NODE"] = "12";
  EXPECT_EQ(find().StepCpus(), 4);
  EXPECT_EQ(find().Workers(0), 3);
  // Half a step does not fit on a node.
  variables["SLURM_JOB_CPUS_PER_NODE"] = "6(x2),4";
  EXPECT_EQ(find().Workers(0), 3);
  variables["SLURM_HINT"] = "nomultithread";
  EXPECT_EQ(find().StepCpus(), 3);
  EXPECT_EQ(find().Workers(0), 4);
}

TEST(SlurmAllocationTest, CpusThatAreCores) {
  SlurmAllocation found = *Find({{"SLURM_JOB_ID", "1"},
                                 {"SLURM_NTASKS", "4"},
                                 {"SLURM_JOB_CPUS_PER_NODE", "4"}});
  AddSlurmFacts("",
                "NodeName=n1 CoresPerSocket=8\n CPUTot=8\n Sockets=1 Boards=1\n"
                " ThreadsPerCore=2",
                found);
  EXPECT_EQ(found.StepCpus(), 1);
  EXPECT_EQ(found.Workers(0), 4);
}

TEST(SlurmAllocationTest, GpusNeedCpus) {
  const auto found = Find({{"SLURM_JOB_ID", "1"},
                           {"SLURM_GPUS", "4"},
                           {"SLURM_CPUS_PER_TASK", "2"},
                           {"SLURM_JOB_CPUS_PER_NODE", "4"}});
  EXPECT_EQ(found->Workers(0), 2);
}

TEST(SlurmAllocationTest, Steps) {
  EXPECT_TRUE(Find({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}})->in_step);
  // The batch script's and salloc's.
  for (const char* special : {"4294967291", "4294967290"}) {
    EXPECT_FALSE(
        Find({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", special}})->in_step);
  }
}

TEST(SlurmAllocationTest, NonsenseIsIgnored) {
  const auto found = Find({{"SLURM_JOB_ID", "1"},
                           {"SLURM_NTASKS", "many"},
                           {"SLURM_CPUS_PER_TASK", "-3"},
                           {"SLURM_JOB_CPUS_PER_NODE", "4(x"},
                           {"SLURM_RESTART_COUNT", "x"}});
  EXPECT_THAT(found->node_cpus, ::testing::IsEmpty());
  EXPECT_EQ(found->tasks, 1);
  EXPECT_EQ(found->cpus_per_task, 1);
  EXPECT_EQ(found->restarts, 0);
}

class SlurmFlagTest : public ::testing::Test {
 protected:
  absl::Status Check(std::vector<std::string> args) {
    args.insert(args.end(), {"--model_def=a.b", "--training_data=d"});
    set_ = FlagSet("elasticdl train", "");
    flags_ = JobFlags();
    return CheckJobFlags(JobCommand::kTrain, args, &flags_, &set_);
  }
  void TearDown() override {
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_NTASKS");
  }
  JobFlags flags_;
  FlagSet set_{"elasticdl train", ""};
};

TEST_F(SlurmFlagTest, WithAndWithoutOptions) {
  ASSERT_TRUE(Check({"--slurm"}).ok());
  EXPECT_TRUE(set_.IsSet("slurm"));
  EXPECT_EQ(flags_.slurm, "");
  ASSERT_TRUE(Check({"--slurm=--time=1:00 --requeue"}).ok());
  EXPECT_EQ(flags_.slurm, "--time=1:00 --requeue");
  ASSERT_TRUE(Check({}).ok());
  EXPECT_FALSE(set_.IsSet("slurm"));
}

TEST_F(SlurmFlagTest, Contradictions) {
  EXPECT_THAT(std::string(Check({"--slurm=gpu"}).message()),
              HasSubstr("options of sbatch"));
  EXPECT_THAT(std::string(Check({"--slurm", "--detach"}).message()),
              HasSubstr("--detach"));
  EXPECT_THAT(
      std::string(Check({"--slurm", "--image=i", "--job_name=j"}).message()),
      HasSubstr("Slurm or on Kubernetes"));
}

TEST_F(SlurmFlagTest, AnAllocationGivesWorkersAndName) {
  setenv("SLURM_JOB_ID", "77", 1);
  setenv("SLURM_NTASKS", "5", 1);
  ASSERT_TRUE(Check({}).ok());
  EXPECT_EQ(flags_.num_workers, 5);
  EXPECT_EQ(flags_.job_name, "a-slurm-77");
  ASSERT_TRUE(Check({"--num_workers=7"}).ok());
  EXPECT_EQ(flags_.num_workers, 7);
  EXPECT_THAT(set_.hints(),
              ::testing::Contains(HasSubstr("Slurm job 77 has room for 5")));
}

}  // namespace
}  // namespace elasticdl::flags
