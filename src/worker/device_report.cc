// What a worker here could compute with, and why not more.
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "absl/strings/str_cat.h"
#include "device.h"
#include "device_choice.h"
#include "elasticdl/collective/nccl.h"
#include "elasticdl/common/file.h"
#include "elasticdl/worker.h"

namespace elasticdl::worker {
namespace {

DeviceFact Libtorch() {
  const bool cuda = at::detail::getCUDAHooks().hasCUDART();
  return {cuda, "libtorch",
          absl::StrCat(TORCH_VERSION, cuda ? " with CUDA" : " without CUDA"),
          "workers compute on the CPU; for GPUs build with a libtorch with "
          "CUDA (Debian 13: libtorch-cuda-dev)"};
}

DeviceFact Gpus(int count, const DeviceWish& wish) {
  DeviceFact fact;
  fact.name = "GPUs of workers";
  fact.found = count > 0;
  if (fact.found) {
    fact.detail = absl::StrCat("cuda:0", count > 1 ? " to cuda:" : "",
                               count > 1 ? absl::StrCat(count - 1) : "");
    return fact;
  }
  DeviceWish cuda = wish;
  cuda.device = "cuda";
  fact.detail = "none";
  fact.advice = std::string(TakeDevice(cuda).status().message());
  return fact;
}

DeviceFact Nccl(const std::string& plugin) {
  DeviceFact fact;
  fact.name = "NCCL plugin";
  if (!FileExists(plugin)) {
    fact.detail = absl::StrCat("none (", plugin, ")");
    fact.advice =
        "gradients of GPUs go through host memory; build where NCCL and the "
        "CUDA runtime are installed (libnccl-dev, cuda-cudart-dev)";
    return fact;
  }
  collective::NcclOptions options;
  options.plugin = plugin;
  const auto opened = collective::OpenNccl(options);
  fact.found = opened.ok();
  fact.detail = opened.ok() ? collective::Describe(**opened)
                            : std::string(opened.status().message());
  fact.advice =
      "gradients of GPUs go through host memory until this is mended; without "
      "GPUs it does not matter";
  return fact;
}

}  // namespace

std::vector<DeviceFact> DescribeDevices(const WorkerOptions& options) {
  DeviceWish wish;
  wish.lock_dir = options.gpu_lock_dir;
  int count = 0;
  std::vector<DeviceFact> facts = {Libtorch()};
  const absl::Status asked = OnDevice("looking for GPUs", [&count] {
    count = static_cast<int>(torch::cuda::device_count());
    return absl::OkStatus();
  });
  facts.push_back(asked.ok() ? Gpus(count, wish)
                             : DeviceFact{false, "GPUs of workers",
                                          std::string(asked.message()),
                                          "nvidia-smi may tell more"});
  facts.push_back(Nccl(options.nccl_plugin));
  return facts;
}

}  // namespace elasticdl::worker
