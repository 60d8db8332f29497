#include "device_choice.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <torch/cuda.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"

namespace elasticdl::worker {
namespace {

// Workers that may share one GPU; more would only wait for each other.
constexpr int kMostSharing = 16;
constexpr char kDriver[] = "/proc/driver/nvidia/version";

// Why there is no GPU, and what to do about it.
struct Reason {
  std::string why;
  std::string advice;
};
Reason WhyNoGpu(const DeviceWish& wish) {
  if (!at::detail::getCUDAHooks().hasCUDART()) {
    return {absl::StrCat("this program uses a libtorch (", TORCH_VERSION,
                         ") without CUDA"),
            "install one with CUDA (Debian 13: libtorch-cuda-dev) and build "
            "again, or use --device=cpu"};
  }
  if (!FileExists(kDriver)) {
    return {
        absl::StrCat("no NVIDIA driver is loaded (there is no ", kDriver, ")"),
        "load it, in a container request gpu=1 (--worker_resource_request), "
        "or use --device=cpu"};
  }
  return {absl::StrCat("the NVIDIA driver is loaded, but this process sees no "
                       "GPU (CUDA_VISIBLE_DEVICES is '",
                       wish.visible, "')"),
          "nvidia-smi tells more, or use --device=cpu"};
}

absl::Status NoGpu(const DeviceWish& wish) {
  const Reason reason = WhyNoGpu(wish);
  return absl::FailedPreconditionError(absl::StrCat(
      "--device=", wish.device, ": ", reason.why, "; ", reason.advice));
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

// The process that has the lock, as it says; 0 = unknown.
pid_t HolderOf(const Fd& lock) {
  char text[16];
  const ssize_t size = pread(lock.get(), text, sizeof(text), 0);
  pid_t pid = 0;
  if (size <= 0 ||
      !absl::SimpleAtoi(absl::string_view(text, size_t(size)), &pid)) {
    return 0;
  }
  return pid;
}

// Later workers wait for the end of this process.
void WriteHolder(const Fd& lock) {
  const std::string text = absl::StrCat(getpid());
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), text.data(), text.size(), 0) < 0) {
    LogWarning("a GPU's lock file cannot be written: ", strerror(errno));
  }
}

// GPUs [begin, end) of this process. No device: all locks are taken, by
// `holders` among others.
absl::StatusOr<std::optional<DeviceLease>> TryLocks(
    const DeviceWish& wish, int begin, int end, std::vector<pid_t>* holders) {
  // First one worker on each GPU, then two, and so on.
  for (int level = 0; level < (wish.sharing ? kMostSharing : 1); ++level) {
    for (int index = begin; index < end; ++index) {
      const std::string path =
          JoinPath(wish.lock_dir,
                   absl::StrCat("gpu-", GpuName(wish, index), ".", level));
      DeviceLease lease;
      lease.lock.Reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (!lease.lock.valid()) {
        return ErrnoToStatus(errno, absl::StrCat("open ", path));
      }
      if (flock(lease.lock.get(), LOCK_EX | LOCK_NB) != 0) {
        const pid_t holder = HolderOf(lease.lock);
        if (holder > 0 && holder != getpid()) holders->push_back(holder);
        continue;
      }
      WriteHolder(lease.lock);
      lease.device = Gpu(index);
      return lease;
    }
  }
  return std::nullopt;
}

// Waits until one of the processes has ended. False: none has by `deadline`, or
// nothing is known of any. `gone`: those that had ended before; a number of
// another container's process may stay in a file, and must not be tried again.
bool AwaitEnd(const std::vector<pid_t>& processes, absl::Time deadline,
              std::set<pid_t>* gone) {
  std::vector<Fd> ends;
  std::vector<pollfd> fds;
  for (const pid_t pid : processes) {
    Fd end = process::OpenPidfd(pid);
    if (!end.valid()) {
      if (errno == ESRCH && gone->insert(pid).second) return true;
      continue;
    }
    fds.push_back({end.get(), POLLIN, 0});
    ends.push_back(std::move(end));
  }
  const int64_t left =
      absl::ToInt64Milliseconds(deadline - Clock::Real().Now());
  if (fds.empty() || left <= 0) return false;
  const int ready = poll(fds.data(), fds.size(), static_cast<int>(left));
  return ready > 0 || (ready < 0 && errno == EINTR);
}

absl::Status OthersHaveThem(const DeviceWish& wish, int begin, int end,
                            int count) {
  if (begin + 1 == end && count > 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "--device=", wish.device,
        ": another worker of this host has this GPU; "
        "use --device=cuda for one that is free, or --gpu_sharing"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "--device=", wish.device, ": other workers have ",
      count == 1 ? "the only GPU" : absl::StrCat("all ", count, " GPUs"),
      " of this host; use fewer workers, or --gpu_sharing, or --device=cpu"));
}

// One of the GPUs [begin, end), of `count`.
absl::StatusOr<DeviceLease> TakeFreeGpu(const DeviceWish& wish, int begin,
                                        int end, int count) {
  const absl::Status made = MakeDirectories(wish.lock_dir);
  if (!made.ok() && begin + 1 == end) {
    // A container may have no place for locks, but then its GPU is its own; and
    // who names one says which.
    DeviceLease lease;
    lease.device = Gpu(begin);
    return lease;
  }
  ELASTICDL_RETURN_IF_ERROR(made);
  const absl::Time deadline = Clock::Real().Now() + wish.patience;
  std::set<pid_t> gone;
  while (true) {
    std::vector<pid_t> holders;
    ELASTICDL_ASSIGN_OR_RETURN(std::optional<DeviceLease> lease,
                               TryLocks(wish, begin, end, &holders));
    if (lease.has_value()) return *std::move(lease);
    if (!AwaitEnd(holders, deadline, &gone)) break;
  }
  return OthersHaveThem(wish, begin, end, count);
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
    if (rest != "auto") return NoGpu(wish);
    DeviceLease lease;
    lease.why_cpu = WhyNoGpu(wish).why;
    return lease;
  }
  // A member on the CPU would hold up those with GPUs, and its arithmetic
  // differs in the last bit.
  if (!named) return TakeFreeGpu(wish, 0, count, count);
  if (index >= count) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--device=", wish.device, ": there ",
        count == 1 ? "is one GPU, cuda:0"
                   : absl::StrCat("are ", count,
                                  " GPUs, cuda:0 to cuda:", count - 1)));
  }
  return TakeFreeGpu(wish, index, index + 1, count);
}

}  // namespace elasticdl::worker
