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

Finding CheckDriver(const DoctorHost& host) {
  const std::string path = JoinPath(host.root, "proc/driver/nvidia/version");
  const auto text = ReadFile(path);
  if (text.ok()) {
    return {State::kOk, "driver", absl::StrCat("NVIDIA ", DriverVersion(*text)),
            ""};
  }
  return {State::kNote, "driver", absl::StrCat("no NVIDIA driver: no ", path),
          "workers train on the CPU; for GPUs load the driver, in a container "
          "use docker run --gpus=all, on a cluster request gpu=1"};
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
  return {State::kNote, "GPU", absl::StrCat("none: ", why),
          "workers train on the CPU; that is fine without GPUs"};
}

}  // namespace

std::vector<Finding> CheckDevices(const DoctorHost& host) {
  std::vector<Finding> findings = {CheckDriver(host)};
  findings.push_back(CheckGpus(host, findings[0].state == State::kOk));
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
  for (Finding& finding : of_worker) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace elasticdl::cli
