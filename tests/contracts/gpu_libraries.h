// Which libraries of CUDA and NCCL a program of contract tests runs with: the
// doubles of tests/gpu, or the real ones. Each suite is linked twice
// (CMakeLists.txt); this sees to it that neither program tests what the other
// one should.
#pragma once

#include <string>

namespace elasticdl::collective {

struct GpuLibraries {
  // What this program was linked for.
  bool wants_real = false;
  // libelasticdl_nccl.so was built.
  bool has_plugin = false;
  // The doubles are loaded.
  bool has_doubles = false;
  // With the real ones: GPUs that ranks can use, and why there are none.
  int num_gpus = 0;
  std::string why_no_gpu;
};

enum class GpuVerdict { kRun, kSkip, kFail };
struct GpuDecision {
  GpuVerdict verdict = GpuVerdict::kRun;
  // If it is not run.
  std::string reason;
  // The largest world; with the doubles there are GPUs for any.
  int most_members = 0;
};
// May tests of NCCL run here? Pure. `doubles_allowed`: those for real GPUs run
// on the doubles, to try these tests themselves.
GpuDecision Decide(const GpuLibraries& libraries, bool doubles_allowed);

// Of this program: gpu_doubles.cc and gpu_real.cc, of which it has one.
bool WantsRealGpus();
// Looks for them in a process of its own, as whoever has used CUDA must not
// fork. The same for the whole life of this one.
const GpuLibraries& FindGpuLibraries();

}  // namespace elasticdl::collective
