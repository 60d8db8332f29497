#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elasticdl/common/file.h"
#include "elasticdl/process.h"
#include "slurm/submit.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BatchJob Job(const std::string& script) {
  BatchJob job;
  job.job_name = "j";
  job.output = "/o/slurm-%j.out";
  job.tasks = 3;
  job.argv = {"sh", "-c", script};
  return job;
}

int RunScript(const BatchJob& job) {
  process::RunOptions run;
  run.argv = {"sh", "-s"};
  run.input = BatchScript(job);
  const auto result = process::Run(run);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->code : -1;
}

TEST(BatchScriptTest, OptionsOfTheUserComeLast) {
  BatchJob job = Job("true");
  job.options = "--ntasks=8 --time=1:00";
  const std::string script = BatchScript(job);
  EXPECT_THAT(script, HasSubstr("#!/bin/sh\n#SBATCH --job-name=j\n"
                                "#SBATCH --ntasks=3\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --output='/o/slurm-%j.out'\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --signal=B:TERM@60\n"
                                "#SBATCH --ntasks=8 --time=1:00\npid=\n"));
  EXPECT_THAT(script, Not(HasSubstr("scontrol")));
}

TEST(BatchScriptTest, EndsLikeItsProgram) {
  EXPECT_EQ(RunScript(Job("exit 0")), 0);
  EXPECT_EQ(RunScript(Job("exit 5")), 5);
}

TEST(BatchScriptTest, ArgumentsArriveAsTheyAre) {
  test::TempDir dir;
  BatchJob job = Job("printf '%s|' \"$@\" > " + dir.Path("args"));
  job.argv.insert(job.argv.end(), {"sh", "it's", "$HOME `x`", "a\"b\nc"});
  EXPECT_EQ(RunScript(job), 0);
  EXPECT_EQ(ReadFile(dir.Path("args")).value_or(""), "it's|$HOME `x`|a\"b\nc|");
}

// SIGTERM reaches the program, and its end is waited for.
TEST(BatchScriptTest, PassesSigtermOn) {
  BatchJob job = Job(
      "trap 'exit 5' TERM; kill -TERM $PPID; while true; do sleep 0.01; done");
  EXPECT_EQ(RunScript(job), 5);
}

TEST(BatchScriptTest, SuspendedJobIsRequeuedIfWanted) {
  BatchJob job = Job("exit 5");
  job.options = "--time=1:00 --requeue";
  EXPECT_THAT(BatchScript(job), HasSubstr("scontrol requeue $SLURM_JOB_ID"));
  job.options = "--no-requeue";
  EXPECT_THAT(BatchScript(job), Not(HasSubstr("scontrol")));
}

}  // namespace
}  // namespace elasticdl::cli
