// Running a program to its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <string>

#include "elasticdl/common/file.h"
#include "elasticdl/process.h"
#include "support/temp_dir.h"

namespace elasticdl::process {
namespace {

using ::testing::HasSubstr;

RunOptions Shell(const std::string& script) {
  RunOptions options;
  options.argv = {"sh", "-c", script};
  options.timeout = absl::Seconds(60);
  return options;
}

TEST(RunTest, StreamsAndExitCode) {
  RunOptions options = Shell("cat; echo wrong >&2; exit 3");
  options.input = "question\n";
  const auto result = process::Run(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 3);
  EXPECT_EQ(result->output, "question\n");
  EXPECT_EQ(result->error, "wrong\n");
  EXPECT_EQ(result->HowItEnded(), "exit code 3");
}

// More than a pipe holds, on both streams and in both directions.
TEST(RunTest, MuchOutputBlocksNobody) {
  RunOptions options = Shell("tee /proc/self/fd/2");
  options.input = std::string(5 << 20, 'x');
  const auto result = process::Run(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->output.size(), options.input.size());
}

TEST(RunTest, FolderAndEnvironment) {
  const test::TempDir folder;
  RunOptions options = Shell("pwd; echo $COLOUR");
  options.folder = folder.path();
  options.environment.push_back("COLOUR=red");
  options.environment.push_back("COLOUR=blue");
  const auto result = process::Run(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->output, HasSubstr(folder.path()));
  EXPECT_THAT(result->output, HasSubstr("\nblue\n"));
  options.folder = "/no/such/folder";
  EXPECT_FALSE(process::Run(options).ok());
}

TEST(RunTest, SignalIsTold) {
  const auto result = process::Run(Shell("kill -9 $$"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 137);
  EXPECT_EQ(result->HowItEnded(), "signal 9");
}

// The child keeps the stream open: whoever waited for its end would hang.
TEST(RunTest, WhatItLeavesRunningIsNotWaitedFor) {
  const auto result = process::Run(Shell("tail -f /dev/null & echo $!"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 0);
  kill(std::stoi(result->output), SIGKILL);
}

TEST(RunTest, TimeoutEndsAllOfIt) {
  RunOptions options = Shell("echo stuck >&2; exec tail -f /dev/null");
  options.timeout = absl::Milliseconds(100);
  const auto result = process::Run(options);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(result.status().message(), HasSubstr("no answer within 100ms"));
}

TEST(RunTest, CanBeCancelled) {
  const Fd cancel(eventfd(1, EFD_CLOEXEC));
  RunOptions options = Shell("exec tail -f /dev/null");
  options.cancel_fd = cancel.get();
  EXPECT_EQ(process::Run(options).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(RunTest, MissingProgram) {
  RunOptions options;
  options.argv = {"no-such-program-x"};
  EXPECT_EQ(process::Run(options).status().code(), absl::StatusCode::kNotFound);
}

TEST(LastWordsTest, EndOfTheText) {
  EXPECT_EQ(LastWords("  all of it\n", 100), "all of it");
  EXPECT_EQ(LastWords("only the end\n", 3), "end");
}

}  // namespace
}  // namespace elasticdl::process
