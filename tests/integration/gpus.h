// The GPUs that workers of tests have: those of the test device
// (tests/gpu/device) where it is preloaded, or, with ELASTICDL_TEST_GPU
// (`make test-gpu`), the real ones.
#pragma once

#include <functional>
#include <string>

namespace elasticdl::test {

struct TestGpus {
  // Tests may use so many; 0: none.
  int count = 0;
  // They are real; nothing can be told to fail.
  bool real = false;
  // Why there are none, or why NCCL does not work on them.
  std::string why_none;
  std::string why_no_nccl;
};

// From the lines that `elasticdl-worker --show_devices` prints.
TestGpus ParseDevices(const std::string& text);
// Those of this test, which has `preloaded` = LD_PRELOAD. `show_devices` is
// called if real ones are wanted.
TestGpus FindGpus(const std::string& preloaded, bool want_real,
                  const std::function<std::string()>& show_devices);

}  // namespace elasticdl::test
