#include "contracts/gpu_libraries.h"

#include <dlfcn.h>
#include <unistd.h>

#include <iostream>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "contracts/rank_processes.h"
#include "contracts/staged_communicator.h"

namespace elasticdl::collective {

GpuDecision Decide(const GpuLibraries& libraries, bool doubles_allowed) {
  if (!libraries.has_plugin) {
    return {GpuVerdict::kSkip, "built without NCCL", 0};
  }
  if (!libraries.wants_real) {
    if (!libraries.has_doubles) {
      return {GpuVerdict::kFail,
              "the doubles of CUDA and NCCL are not loaded: is "
              "LD_LIBRARY_PATH set?",
              0};
    }
    return {GpuVerdict::kRun, "", std::numeric_limits<int>::max()};
  }
  if (libraries.has_doubles && !doubles_allowed) {
    return {GpuVerdict::kFail,
            "a test of real GPUs would run on the doubles: is "
            "LD_LIBRARY_PATH set?",
            0};
  }
  if (libraries.num_gpus < 1) {
    return {GpuVerdict::kSkip,
            absl::StrCat("there is no GPU: ", libraries.why_no_gpu), 0};
  }
  if (libraries.num_gpus < 2) {
    return {GpuVerdict::kSkip,
            "NCCL needs two GPUs, and there is one (each member has its own)",
            1};
  }
  return {GpuVerdict::kRun, "", libraries.num_gpus};
}

namespace {

GpuLibraries Look() {
  GpuLibraries found;
  found.wants_real = WantsRealGpus();
  found.has_plugin = access(ELASTICDL_NCCL_PLUGIN, R_OK) == 0;
  found.has_doubles = dlsym(RTLD_DEFAULT, "test_cudart_host") != nullptr;
  if (!found.wants_real || !found.has_plugin) return found;
  RankProcesses process(1, [](int, Channel& test) -> std::string {
    const absl::StatusOr<int> count = CountDevices();
    const absl::Status sent =
        test.Send(count.ok() ? absl::StrCat(*count)
                             : std::string(count.status().message()));
    return std::string(sent.message());
  });
  const absl::StatusOr<std::string> answer = process.channel(0).Receive();
  const std::string text =
      answer.ok() ? *answer : std::string(answer.status().message());
  if (!absl::SimpleAtoi(text, &found.num_gpus)) {
    found.num_gpus = 0;
    found.why_no_gpu = text;
  }
  std::cout << "GPUs: " << found.num_gpus
            << (found.has_doubles ? " (doubles)" : "") << "\n";
  return found;
}

}  // namespace

const GpuLibraries& FindGpuLibraries() {
  static const auto* const found = new GpuLibraries(Look());
  return *found;
}

}  // namespace elasticdl::collective
