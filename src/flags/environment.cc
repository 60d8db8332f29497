#include "elasticdl/flags/environment.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"

namespace elasticdl::flags {
namespace {

std::string Below(const std::string& variable, const std::string& fallback) {
  std::string root = GetEnv(variable);
  // The XDG rules: a relative path is not valid and is ignored.
  if (root.empty() || root[0] != '/') root = JoinPath(HomeDir(), fallback);
  return JoinPath(root, "elasticdl");
}

}  // namespace

std::string GetEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::vector<std::string> Environment() {
  return process::InheritedEnvironment();
}

std::string ProgramBeside(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

int LocalGpuCount() {
  int count = 0;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    // CUDA stops at the first name that is none; -1 hides all that follow.
    for (const absl::string_view name : absl::StrSplit(visible, ',')) {
      if (name.empty() || name[0] == '-') break;
      ++count;
    }
    return count;
  }
  return CountGpuFiles("/dev");
}

int UsableGpuCount() {
  const bool driver = FileExists("/proc/driver/nvidia/version");
  return ELASTICDL_TORCH_HAS_CUDA != 0 && driver ? LocalGpuCount() : 0;
}

int CountGpuFiles(const std::string& dev) {
  const auto names = ListDirectory(dev);
  if (!names.ok()) return 0;
  return static_cast<int>(
      std::count_if(names->begin(), names->end(), [](absl::string_view name) {
        // Others are of the driver: nvidiactl, nvidia-uvm.
        return absl::ConsumePrefix(&name, "nvidia") && !name.empty() &&
               std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
      }));
}

std::string HomeDir() {
  std::string home = GetEnv("HOME");
  if (!home.empty()) return home;
  const struct passwd* user = getpwuid(getuid());
  return user == nullptr ? "/tmp" : user->pw_dir;
}

std::string DefaultStateDir() {
  return Below("XDG_STATE_HOME", ".local/state");
}

std::string DefaultCacheDir() { return Below("XDG_CACHE_HOME", ".cache"); }

}  // namespace elasticdl::flags
