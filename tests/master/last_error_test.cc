// The last error of a pod's log.
#include "last_error.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

std::string LastOf(const std::string& log) {
  const test::TempDir dir;
  std::ofstream(dir.Path("log")) << log;
  return LastErrorIn(dir.Path("log"));
}

TEST(LastErrorTest, IsTheLastErrorWithoutTimeAndLevel) {
  const std::string info = "[2026-01-01 00:00:00.000] [info] [ps 0] hello\n";
  const std::string first = "[2026-01-01 00:00:00.000] [error] [ps 0] one\n";
  const std::string second = "[2026-01-01 00:00:00.000] [error] [ps 0] two\n";
  EXPECT_EQ(LastOf(info + first + second + info), "two");
}

TEST(LastErrorTest, IsTheLastLineIfThereIsNoError) {
  EXPECT_EQ(LastOf("one\nelasticdl-ps: --port: 'x' is not a number\n\n"),
            "elasticdl-ps: --port: 'x' is not a number");
  EXPECT_EQ(LastOf(""), "");
  EXPECT_EQ(LastErrorIn("/nowhere/log"), "");
}

TEST(LastErrorTest, IsFoundAtTheEndOfALongLog) {
  const std::string line = "[2026-01-01 00:00:00.000] [error] [ps 0] ";
  EXPECT_EQ(LastOf(std::string(1 << 20, 'x') + "\n" + line + "two\n"), "two");
  EXPECT_EQ(LastOf(line + std::string(1000, 'y')), std::string(300, 'y'));
}

}  // namespace
}  // namespace elasticdl::master
