#include "doctor/checks.h"

#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cluster_exec.h"
#include "doctor/device_checks.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/flag_builder.h"
#include "version_info.h"

namespace elasticdl::cli {
namespace {

using State = Finding::State;

constexpr absl::Duration kRunTimeout = absl::Seconds(20);
// Gradients of workers on one host go through it; a container of Docker has
// 64 MiB unless it is told otherwise.
constexpr int64_t kSharedMemory = int64_t{256} << 20;
constexpr int64_t kDisk = int64_t{2} << 30;

std::string Size(int64_t bytes) {
  if (bytes < (int64_t{1} << 30)) {
    return absl::StrCat(bytes >> 20, " MiB");
  }
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string FirstLine(const std::string& text) {
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : std::string(absl::StripAsciiWhitespace(lines[0]));
}

// The first line of what `argv` says; NOT_FOUND without it.
absl::StatusOr<std::string> Ask(const DoctorHost& host,
                                const std::vector<std::string>& argv) {
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result, host.run(argv));
  if (result.code == 0) return FirstLine(result.output);
  return absl::UnknownError(absl::StrCat(argv[0], ": ", result.HowItEnded(),
                                         " ", FirstLine(result.error)));
}

std::vector<Finding> Programs(const DoctorHost& host) {
  std::vector<std::string> missing;
  for (const char* name :
       {"elasticdl-master", "elasticdl-worker", "elasticdl-ps",
        "elasticdl-ckpt", "elasticdl-cluster", "elasticdl-experiment"}) {
    if (!FileExists(JoinPath(host.program_dir, name))) missing.push_back(name);
  }
  Finding finding = {State::kOk, "programs",
                     absl::StrCat("elasticdl ", kVersion, " (", kBuildType,
                                  ") in ", host.program_dir),
                     ""};
  if (!missing.empty()) {
    finding.state = State::kNote;
    absl::StrAppend(&finding.detail, ", without ",
                    absl::StrJoin(missing, ", "));
    finding.advice =
        "jobs on this machine need all of them: install the package "
        "elasticdl, or `make install`";
  }
  return {finding};
}

std::vector<Finding> Libraries(const DoctorHost&) {
  std::vector<std::string> used;
  for (const LibraryVersion& library : kLibraries) {
    if (library.version[0] == '\0') continue;
    used.push_back(absl::StrCat(library.name, " ", library.version));
  }
  return {{State::kOk, "built with", absl::StrJoin(used, ", "), ""}};
}

std::vector<Finding> Compiler(const DoctorHost& host) {
  const auto version = Ask(host, {"c++", "--version"});
  if (version.ok()) return {{State::kOk, "compiler", *version, ""}};
  return {{State::kNote, "compiler", "no c++",
           "model files (.cc) are compiled when a job starts: install g++. "
           "TorchScript models and prebuilt libraries need none"}};
}

std::vector<Finding> Cores(const DoctorHost& host) {
  return {{State::kOk, "cores", Count(host.cores, "core"), ""}};
}

std::vector<Finding> SharedMemory(const DoctorHost& host) {
  const std::string path = JoinPath(host.root, "dev/shm");
  const auto bytes = host.free_bytes(path);
  Finding finding = {State::kOk, "shared memory", "", ""};
  if (!bytes.ok()) {
    finding.state = State::kProblem;
    finding.detail = absl::StrCat("no ", path);
    finding.advice =
        "mount a tmpfs there; until then workers of one host exchange "
        "gradients over sockets (--collective=tcp)";
    return {finding};
  }
  finding.detail = absl::StrCat(Size(*bytes), " free in ", path);
  if (*bytes < kSharedMemory) {
    finding.state = State::kProblem;
    finding.advice =
        "too little for large models: docker run --shm-size=1g, or an "
        "emptyDir of medium Memory in a pod";
  }
  return {finding};
}

std::vector<Finding> Memory(const DoctorHost& host) {
  const auto text = ReadFile(JoinPath(host.root, "proc/meminfo"));
  if (!text.ok()) {
    return {{State::kNote, "memory", "not known: no /proc/meminfo", ""}};
  }
  int64_t available = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty() && absl::SimpleAtoi(words[0], &available)) break;
  }
  available <<= 10;
  Finding finding = {State::kOk, "memory",
                     absl::StrCat(Size(available), " available"), ""};
  if (available < (int64_t{1} << 30)) {
    finding.state = State::kProblem;
    finding.advice = "a worker takes about 200 MiB before its model";
  }
  return {finding};
}

std::vector<Finding> Disk(const DoctorHost& host) {
  std::vector<Finding> findings;
  for (const auto& [what, path] :
       {std::pair<const char*, std::string>{"jobs", host.state_dir},
        {"cache", host.cache_dir}}) {
    const auto bytes = host.free_bytes(path);
    Finding finding = {State::kOk, absl::StrCat("disk: ", what), "", ""};
    if (!bytes.ok()) {
      finding.state = State::kProblem;
      finding.detail = std::string(bytes.status().message());
      finding.advice =
          "make the folder, or set XDG_STATE_HOME and "
          "XDG_CACHE_HOME to where you may write";
    } else {
      finding.detail = absl::StrCat(Size(*bytes), " free in ", path);
      if (*bytes < kDisk) {
        finding.state = State::kProblem;
        finding.advice = "make room: logs, compiled models and data go there";
      }
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> Mpi(const DoctorHost& host) {
  const auto version = Ask(host, {"mpirun", "--version"});
  if (version.ok()) return {{State::kOk, "MPI", *version, ""}};
  return {{State::kNote, "MPI", "no mpirun",
           "only --collective=mpi needs it: install openmpi-bin"}};
}

// What elasticdl-cluster finds; it links the libraries for that.
absl::StatusOr<std::vector<Finding>> AskCluster(const DoctorHost& host,
                                                const std::string& part) {
  const std::string program = JoinPath(host.program_dir, "elasticdl-cluster");
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result,
                             host.run({program, "doctor", part}));
  std::vector<Finding> findings = FindingsFromJson(result.output);
  if (!findings.empty()) return findings;
  return absl::UnknownError(absl::StrCat(program, ": ", result.HowItEnded(),
                                         " ", FirstLine(result.error)));
}

std::vector<Finding> Cluster(const DoctorHost& host) {
  if (!host.cluster_configured) {
    return {{State::kNote, "cluster", "no kubeconfig",
             "only jobs with --image need one: set KUBECONFIG or make "
             "~/.kube/config"}};
  }
  auto findings = AskCluster(host, "cluster");
  if (findings.ok()) return *std::move(findings);
  return {{State::kProblem, "cluster", std::string(findings.status().message()),
           "install elasticdl-cluster beside elasticdl"}};
}

// Docker and the registries.
std::vector<Finding> Images(const DoctorHost& host) {
  auto findings = AskCluster(host, "images");
  if (findings.ok()) return *std::move(findings);
  return {{State::kNote, "Docker", std::string(findings.status().message()),
           "only `elasticdl zoo build` and `zoo push` need it"}};
}

}  // namespace

const std::vector<Check>& AllChecks() {
  static const auto* checks = new std::vector<Check>{
      Programs, Libraries,    Compiler, Cores,   Memory, SharedMemory,
      Disk,     CheckDevices, Mpi,      Cluster, Images};
  return *checks;
}

std::vector<Finding> RunChecks(const DoctorHost& host) {
  std::vector<Finding> findings;
  for (const Check& check : AllChecks()) {
    for (Finding& finding : check(host)) findings.push_back(std::move(finding));
  }
  return findings;
}

DoctorHost RealHost() {
  DoctorHost host;
  const std::string self = flags::ProgramBeside("elasticdl");
  host.program_dir = self.substr(0, self.rfind('/'));
  host.state_dir = flags::DefaultStateDir();
  host.cache_dir = flags::DefaultCacheDir();
  host.cluster_configured = ClusterIsConfigured();
  cpu_set_t allowed;
  host.cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                   ? CPU_COUNT(&allowed)
                   : static_cast<int>(std::thread::hardware_concurrency());
  host.run = [](const std::vector<std::string>& argv) {
    process::RunOptions options;
    options.argv = argv;
    options.timeout = kRunTimeout;
    return process::Run(options);
  };
  host.free_bytes = [](const std::string& path) -> absl::StatusOr<int64_t> {
    struct statvfs disk = {};
    std::string folder = path;
    // What is not there yet will be made in the folder above.
    while (statvfs(folder.c_str(), &disk) != 0) {
      const size_t slash = folder.rfind('/');
      if (errno != ENOENT || slash == std::string::npos || folder == "/") {
        return ErrnoToStatus(errno, path);
      }
      folder.resize(std::max<size_t>(1, slash));
    }
    return static_cast<int64_t>(disk.f_bavail) *
           static_cast<int64_t>(disk.f_frsize);
  };
  return host;
}

int RunDoctor(const std::vector<std::string>& args) {
  flags::FlagSet set("elasticdl doctor",
                     "Checks this machine: what is installed, what is "
                     "missing, and what to do about it. Exit code 1 if there "
                     "is a problem.");
  bool json = false;
  set.Add("json", &json,
          flags::Info("Options", "Print a JSON object per line."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const std::vector<Finding> findings = RunChecks(RealHost());
  std::fputs(
      (json ? FindingsToJson(findings) : DescribeFindings(findings)).c_str(),
      stdout);
  return HasProblem(findings) ? 1 : 0;
}

}  // namespace elasticdl::cli
