#include "device_choice.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {
namespace {

// Workers that may share one GPU; more would only wait for each other.
constexpr int kMostSharing = 16;
constexpr char kDriver[] = "/proc/driver/nvidia/version";

absl::Status NoGpu(const DeviceWish& wish) {
  const std::string what = absl::StrCat("--device=", wish.device, ": ");
  if (!at::detail::getCUDAHooks().hasCUDART()) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, "this program uses a libtorch (", TORCH_VERSION,
        ") without CUDA; install one with CUDA (Debian 13: libtorch-cuda-dev) "
        "and build again, or use --device=cpu"));
  }
  if (!FileExists(kDriver)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, "no NVIDIA driver is loaded (there is no ", kDriver,
                     "); load it, in a container request gpu=1 "
                     "(--worker_resource_request), or use --device=cpu"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      what, "the NVIDIA driver is loaded, but this process sees no GPU ",
      "(CUDA_VISIBLE_DEVICES is '", wish.visible,
      "'); nvidia-smi tells more, or use --device=cpu"));
}

// The name of GPU `index` of this process, for all processes of the host.
std::string GpuName(const DeviceWish& wish, int index) {
  const std::vector<std::string> names = absl::StrSplit(wish.visible, ',');
  if (wish.visible.empty() || static_cast<size_t>(index) >= names.size()) {
    return absl::StrCat(index);
  }
  std::string name(absl::StripAsciiWhitespace(names[size_t(index)]));
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return name;
}

c10::Device Gpu(int index) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

absl::StatusOr<DeviceLease> TakeFreeGpu(const DeviceWish& wish, int count) {
  const absl::Status made = MakeDirectories(wish.lock_dir);
  if (!made.ok() && count == 1) {
    // A container may have no place for locks, but then its GPU is its own.
    DeviceLease lease;
    lease.device = Gpu(0);
    return lease;
  }
  ELASTICDL_RETURN_IF_ERROR(made);
  // First one worker on each GPU, then two, and so on.
  for (int level = 0; level < (wish.sharing ? kMostSharing : 1); ++level) {
    for (int index = 0; index < count; ++index) {
      const std::string path =
          JoinPath(wish.lock_dir,
                   absl::StrCat("gpu-", GpuName(wish, index), ".", level));
      DeviceLease lease;
      lease.lock.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (!lease.lock.valid()) {
        return ErrnoToStatus(errno, absl::StrCat("open ", path));
      }
      if (flock(lease.lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
      lease.device = Gpu(index);
      return lease;
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "--device=", wish.device, ": other workers have ",
      count == 1 ? "the only GPU" : absl::StrCat("all ", count, " GPUs"),
      " of this host; use fewer workers, or --gpu_sharing, or --device=cpu"));
}

}  // namespace

absl::StatusOr<DeviceLease> TakeDevice(const DeviceWish& wish) {
  if (wish.device == "cpu") return DeviceLease();
  absl::string_view rest = wish.device;
  int index = -1;
  const bool named = absl::ConsumePrefix(&rest, "cuda:");
  if (named ? !absl::SimpleAtoi(rest, &index) || index < 0
            : rest != "auto" && rest != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=", wish.device, " is none of auto, cpu, cuda and cuda:N"));
  }
  const int count = static_cast<int>(torch::cuda::device_count());
  if (count == 0) {
    return rest == "auto" ? absl::StatusOr<DeviceLease>(DeviceLease())
                          : NoGpu(wish);
  }
  if (!named) {
    absl::StatusOr<DeviceLease> lease = TakeFreeGpu(wish, count);
    if (rest == "cuda" || !absl::IsResourceExhausted(lease.status())) {
      return lease;
    }
    LogWarning(
        lease.status().message(),
        "; this worker computes on the CPU, which members with GPUs have "
        "to wait for");
    return DeviceLease();
  }
  if (index >= count) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--device=", wish.device, ": there ",
        count == 1 ? "is one GPU, cuda:0"
                   : absl::StrCat("are ", count,
                                  " GPUs, cuda:0 to cuda:", count - 1)));
  }
  DeviceLease lease;
  lease.device = Gpu(index);
  return lease;
}

}  // namespace elasticdl::worker
