#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "doctor/checks.h"
#include "doctor/device_checks.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;
using State = Finding::State;

// A machine with everything.
class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    for (const char* name :
         {"elasticdl-master", "elasticdl-worker", "elasticdl-ps",
          "elasticdl-ckpt", "elasticdl-cluster", "elasticdl-experiment"}) {
      EXPECT_TRUE(WriteFileAtomic(dir_.Path(name), "").ok());
    }
    EXPECT_TRUE(MakeDirectories(dir_.Path("proc/driver/nvidia")).ok());
    EXPECT_TRUE(
        WriteFileAtomic(dir_.Path("proc/driver/nvidia/version"),
                        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "
                        "535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
                        "GCC version:  gcc version 12.2.0\n")
            .ok());
    EXPECT_TRUE(WriteFileAtomic(dir_.Path("proc/meminfo"),
                                "MemTotal: 9000000 kB\n"
                                "MemAvailable:    8000000 kB\n")
                    .ok());
    host_.program_dir = dir_.path();
    host_.root = dir_.path();
    host_.state_dir = "/state";
    host_.cache_dir = "/cache";
    host_.cores = 4;
    host_.cluster_configured = true;
    host_.run = [this](const std::vector<std::string>& argv)
        -> absl::StatusOr<process::RunResult> {
      // A whole command line comes before the program alone.
      for (const std::string& asked : {absl::StrJoin(argv, " "), argv[0]}) {
        for (const auto& [command, output] : answers_) {
          if (!absl::EndsWith(asked, command)) continue;
          process::RunResult result;
          result.output = output;
          return result;
        }
      }
      return absl::NotFoundError(argv[0] + " is not installed");
    };
    host_.free_bytes = [this](const std::string& path) {
      return absl::EndsWith(path, "shm") ? shm_ : disk_;
    };
  }

  Finding Find(const std::string& name) {
    for (const Finding& finding : RunChecks(host_)) {
      if (finding.name == name) return finding;
    }
    ADD_FAILURE() << "nothing about " << name;
    return {};
  }

  test::TempDir dir_;
  DoctorHost host_;
  std::map<std::string, std::string> answers_ = {
      {"c++", "g++ 12.2\n"},
      {"nvidia-smi", "A100, 40960 MiB\nA100, 40960 MiB\n"},
      {"elasticdl-worker",
       R"({"state":"ok","name":"libtorch","detail":"2.6.0 with CUDA"})"
       "\n"
       R"({"state":"ok","name":"NCCL plugin","detail":"NCCL 2.22.3"})"},
      {"mpirun", "mpirun (Open MPI) 4.1.4\n"},
      {"elasticdl-cluster",
       R"({"state":"ok","name":"cluster","detail":"https://x","advice":""})"
       "\nnonsense\n"
       R"({"state":"problem","name":"rights","detail":"no","advice":"ask"})"}};
  absl::StatusOr<int64_t> shm_ = int64_t{1} << 30;
  absl::StatusOr<int64_t> disk_ = int64_t{10} << 30;
};

TEST_F(DoctorTest, AHealthyMachineHasNoProblem) {
  answers_["elasticdl-cluster"] =
      R"({"state":"ok","name":"cluster","detail":"https://x"})";
  const auto findings = RunChecks(host_);
  EXPECT_FALSE(HasProblem(findings)) << DescribeFindings(findings);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.state, State::kOk) << finding.name;
  }
  const std::string text = DescribeFindings(findings);
  EXPECT_THAT(text, HasSubstr("cores           4 cores\n"));
  EXPECT_THAT(text, HasSubstr("driver          NVIDIA 535.104.05\n"));
  EXPECT_THAT(text, HasSubstr("GPU             A100, 40960 MiB; A100, "));
  EXPECT_THAT(text, HasSubstr("NCCL plugin     NCCL 2.22.3\n"));
  EXPECT_THAT(text, HasSubstr("memory          7.6 GiB available\n"));
}

TEST_F(DoctorTest, WhatIsMissingComesWithAdvice) {
  answers_.clear();
  host_.cluster_configured = false;
  EXPECT_TRUE(RemoveTree(dir_.Path("elasticdl-worker")).ok());
  EXPECT_TRUE(RemoveTree(dir_.Path("proc/driver")).ok());
  EXPECT_EQ(Find("compiler").state, State::kNote);
  EXPECT_EQ(Find("GPU").state, State::kNote);
  EXPECT_EQ(Find("MPI").state, State::kNote);
  EXPECT_EQ(Find("cluster").state, State::kNote);
  EXPECT_THAT(Find("programs").detail, HasSubstr("without elasticdl-worker"));
  for (const Finding& finding : RunChecks(host_)) {
    if (finding.state == State::kOk) continue;
    EXPECT_NE(finding.advice, "") << finding.name;
  }
  EXPECT_FALSE(HasProblem(RunChecks(host_))) << "a small machine is fine";
}

TEST_F(DoctorTest, LittleSharedMemoryIsAProblem) {
  shm_ = int64_t{64} << 20;
  EXPECT_EQ(Find("shared memory").state, State::kProblem);
  EXPECT_THAT(Find("shared memory").detail, HasSubstr("64 MiB"));
  EXPECT_THAT(Find("shared memory").advice, HasSubstr("--shm-size"));
  shm_ = absl::NotFoundError("gone");
  EXPECT_EQ(Find("shared memory").state, State::kProblem);
}

TEST_F(DoctorTest, AFullDiskIsAProblem) {
  disk_ = int64_t{1} << 20;
  EXPECT_EQ(Find("disk: jobs").state, State::kProblem);
  disk_ = absl::PermissionDeniedError("/state: no");
  EXPECT_EQ(Find("disk: cache").state, State::kProblem);
}

TEST_F(DoctorTest, TheClusterSpeaksForItself) {
  EXPECT_EQ(Find("cluster").state, State::kOk);
  EXPECT_EQ(Find("rights").state, State::kProblem);
  EXPECT_THAT(DescribeFindings(RunChecks(host_)), HasSubstr("-> ask\n"));
  answers_["elasticdl-cluster"] = "Segmentation fault";
  EXPECT_EQ(Find("cluster").state, State::kProblem);
}

// They are looked at without a cluster, too.
TEST_F(DoctorTest, DockerAndRegistriesSpeakForThemselves) {
  host_.cluster_configured = false;
  answers_["elasticdl-cluster doctor images"] =
      R"({"state":"ok","name":"Docker","detail":"an engine answers"})"
      "\n"
      R"({"state":"problem","name":"registry","detail":"gcr.io: denied",)"
      R"("advice":"`docker login gcr.io`"})";
  EXPECT_EQ(Find("Docker").state, State::kOk);
  EXPECT_EQ(Find("registry").state, State::kProblem);
  EXPECT_EQ(Find("cluster").state, State::kNote);
  answers_.clear();
  EXPECT_EQ(Find("Docker").state, State::kNote);
  EXPECT_THAT(Find("Docker").advice, HasSubstr("zoo push"));
}

TEST_F(DoctorTest, AProgramThatIsMissingIsNamed) {
  EXPECT_TRUE(RemoveTree(dir_.Path("elasticdl-experiment")).ok());
  EXPECT_EQ(Find("programs").state, State::kNote);
  EXPECT_THAT(Find("programs").detail,
              HasSubstr("without elasticdl-experiment"));
}

TEST_F(DoctorTest, ADriverWithoutItsToolsIsAProblem) {
  answers_.erase("nvidia-smi");
  EXPECT_EQ(Find("GPU").state, State::kProblem);
  EXPECT_THAT(Find("GPU").advice, HasSubstr("the driver is loaded"));
}

TEST_F(DoctorTest, TheWorkerSaysWhatItCannotUse) {
  answers_["elasticdl-worker"] =
      R"({"state":"note","name":"NCCL plugin","detail":"no libnccl.so.2",)"
      R"("advice":"install libnccl2"})";
  EXPECT_EQ(Find("NCCL plugin").state, State::kNote);
  EXPECT_THAT(DescribeFindings(RunChecks(host_)),
              HasSubstr("-> install libnccl2\n"));
  answers_["elasticdl-worker"] = "Illegal instruction";
  EXPECT_EQ(Find("worker").state, State::kProblem);
}

TEST_F(DoctorTest, AMachineWithoutAGpuHasOneNoteAboutIt) {
  EXPECT_TRUE(RemoveTree(dir_.Path("proc/driver")).ok());
  answers_.erase("nvidia-smi");
  answers_["elasticdl-worker"] =
      R"({"state":"note","name":"libtorch","detail":"1.13.1 without CUDA"})"
      "\n"
      R"({"state":"note","name":"NCCL plugin","detail":"none"})";
  std::vector<std::string> notes;
  for (const Finding& finding : CheckDevices(host_)) {
    notes.push_back(finding.name);
  }
  EXPECT_THAT(notes, ::testing::ElementsAre("GPU"));
  EXPECT_THAT(Find("GPU").advice, HasSubstr("train on the CPU"));
  // What keeps a worker from starting is told all the same.
  answers_["elasticdl-worker"] = "Illegal instruction";
  EXPECT_EQ(Find("worker").state, State::kProblem);
}

TEST(FindingTest, JsonGoesBothWays) {
  const std::vector<Finding> findings = {
      {State::kProblem, "a \"b\"", "c\nd", "e"}, {State::kOk, "x", "", ""}};
  const auto back = FindingsFromJson(FindingsToJson(findings));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].state, State::kProblem);
  EXPECT_EQ(back[0].name, "a \"b\"");
  EXPECT_EQ(back[0].detail, "c\nd");
}

TEST(RealDoctorTest, LooksAtThisMachine) {
  const DoctorHost host = RealHost();
  EXPECT_GE(host.cores, 1);
  EXPECT_TRUE(host.free_bytes("/no/such/folder").ok());
}

}  // namespace
}  // namespace elasticdl::cli
