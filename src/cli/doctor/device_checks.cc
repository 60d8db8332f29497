#include "doctor/device_checks.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"

namespace elasticdl::cli {
namespace {

using State = Finding::State;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipWhitespace());
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu …".
std::string DriverVersion(const std::string& text) {
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(word[0])) &&
        absl::StrContains(word, '.')) {
      return std::string(word);
    }
  }
  return "of an unknown version";
}

// On a machine without GPUs nothing else about them is worth a line.
Finding NoGpu(const std::string& why) {
  return {State::kNote, "GPU",
          absl::StrCat("none: no NVIDIA driver, and ", why),
          "workers train on the CPU. For GPUs load the driver, in a container "
          "use docker run --gpus=all, on a cluster request gpu=1; then this "
          "command says what else they need"};
}

Finding CheckGpus(const DoctorHost& host, bool driver) {
  const auto asked = host.run(
      {"nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"});
  if (asked.ok() && asked->code == 0 && !Lines(asked->output).empty()) {
    return {State::kOk, "GPU", absl::StrJoin(Lines(asked->output), "; "), ""};
  }
  const std::string why =
      !asked.ok() ? "there is no nvidia-smi"
                  : absl::StrCat("nvidia-smi: ", asked->HowItEnded(), " ",
                                 absl::StrJoin(Lines(asked->error), " "));
  if (driver) {
    return {State::kProblem, "GPU", absl::StrCat("not known: ", why),
            "the driver is loaded, so nvidia-smi should list the GPUs: install "
            "it in the driver's version, or restart the machine after an "
            "update of the driver"};
  }
  return NoGpu(why);
}

}  // namespace

std::vector<Finding> CheckDevices(const DoctorHost& host) {
  const auto driver =
      ReadFile(JoinPath(host.root, "proc/driver/nvidia/version"));
  std::vector<Finding> findings;
  if (driver.ok()) {
    findings.push_back({State::kOk, "driver",
                        absl::StrCat("NVIDIA ", DriverVersion(*driver)), ""});
  }
  findings.push_back(CheckGpus(host, driver.ok()));
  const bool without = findings.back().state == State::kNote;
  const std::string worker = JoinPath(host.program_dir, "elasticdl-worker");
  if (!FileExists(worker)) return findings;
  const auto asked = host.run({worker, "--show_devices"});
  std::vector<Finding> of_worker;
  if (asked.ok() && asked->code == 0) {
    of_worker = FindingsFromJson(asked->output);
  }
  if (of_worker.empty()) {
    of_worker.push_back(
        {State::kProblem, "worker",
         asked.ok() ? absl::StrCat(worker, ": ", asked->HowItEnded(), " ",
                                   absl::StrJoin(Lines(asked->error), " "))
                    : std::string(asked.status().message()),
         "no job can train on this machine before its program starts: is it "
         "of this version, and is libtorch installed?"});
  }
  for (Finding& finding : of_worker) {
    if (without && finding.state == State::kNote) continue;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace elasticdl::cli
