// The process's environment, read here and nowhere else.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::flags {

// "" when it is not set.
std::string GetEnv(const std::string& name);

// KEY=VALUE of this process.
std::vector<std::string> Environment();

// A program that is installed beside this one.
std::string ProgramBeside(const std::string& name);

// NVIDIA GPUs that a process of this host sees: CUDA_VISIBLE_DEVICES, or the
// device files. Whether libtorch can use them is another question.
int LocalGpuCount();
// Those that workers of this build can use: 0 if it has a libtorch without CUDA
// or if there is no driver.
int UsableGpuCount();
// The device files of GPUs in `dev`. They need not begin at 0 or be without
// gaps: a container may have only the second one.
int CountGpuFiles(const std::string& dev);

// $HOME, or what the system knows.
std::string HomeDir();

// ${XDG_STATE_HOME:-~/.local/state}/elasticdl: jobs/<job_name> is below it.
std::string DefaultStateDir();
// ${XDG_CACHE_HOME:-~/.cache}/elasticdl: compiled models.
std::string DefaultCacheDir();

}  // namespace elasticdl::flags
