// Which GPUs tests of jobs find, from what workers say of themselves.
#include "integration/gpus.h"

#include <gmock/gmock.h>

namespace elasticdl::test {
namespace {

using ::testing::HasSubstr;

std::string Fact(const std::string& state, const std::string& name,
                 const std::string& detail) {
  return R"({"state":")" + state + R"(","name":")" + name + R"(","detail":")" +
         detail + R"(","advice":"buy one"})" + "\n";
}

TEST(GpusTest, AreCounted) {
  const TestGpus four = ParseDevices(
      Fact("ok", "libtorch", "2.6.0 with CUDA") +
      Fact("ok", "GPUs of workers", "cuda:0 to cuda:3") +
      Fact("ok", "NCCL plugin", "NCCL 2.22.3, GPU 0 of 4 (0000:01:00.0)"));
  EXPECT_EQ(four.count, 4);
  EXPECT_EQ(four.why_none, "");
  EXPECT_EQ(four.why_no_nccl, "");
  EXPECT_EQ(ParseDevices(Fact("ok", "GPUs of workers", "cuda:0")).count, 1);
}

TEST(GpusTest, TellWhyThereAreNone) {
  const TestGpus none = ParseDevices(Fact("note", "GPUs of workers", "none") +
                                     Fact("note", "NCCL plugin", "no driver"));
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.why_none, "buy one");
  EXPECT_EQ(none.why_no_nccl, "no driver");
  const TestGpus broken = ParseDevices("cannot start\n");
  EXPECT_EQ(broken.count, 0);
  EXPECT_THAT(broken.why_none, HasSubstr("cannot start"));
  EXPECT_THAT(broken.why_no_nccl, HasSubstr("cannot start"));
}

TEST(GpusTest, TheTestDeviceComesFirst) {
  const auto four = [] {
    return Fact("ok", "GPUs of workers", "cuda:0 to cuda:3");
  };
  const TestGpus device =
      FindGpus("build/gpu-doubles/libelasticdl_test_device.so", true, four);
  EXPECT_FALSE(device.real);
  EXPECT_EQ(device.count, 16);
  const TestGpus real = FindGpus("", true, four);
  EXPECT_TRUE(real.real);
  EXPECT_EQ(real.count, 4);
  const TestGpus none = FindGpus("", false, four);
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.why_none, "the test device is not preloaded");
}

}  // namespace
}  // namespace elasticdl::test
