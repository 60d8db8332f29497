#include "slurm_pod_backend.h"

#include <sys/utsname.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/status.h"
#include "local_pod_backend.h"

namespace elasticdl::master {
namespace {

// The first word of the line that a step says.
constexpr char kMark[] = "elasticdl-step";

// Says which step this is, then becomes the program. From then on everything
// goes to standard error, and standard output stays silent.
constexpr char kScript[] =
    R"sh(echo "elasticdl-step $SLURM_STEP_ID $$ $(uname -n)"; exec "$@" >&2)sh";

std::vector<std::string> StepCommand(const SlurmOptions& slurm,
                                     const PodSpec& spec) {
  std::vector<std::string> argv = {
      "srun", absl::StrCat("--jobid=", slurm.job_id),
      absl::StrCat("--job-name=", spec.name),
      // Open MPI's plugin would end the step when a process dies.
      "--mpi=none", "--nodes=1", "--ntasks=1", "--exact",
      absl::StrCat("--cpus-per-task=", slurm.cpus_per_task),
      // Steps share the memory of the job.
      "--mem=0", "--input=none", "--export=ALL"};
  if (slurm.gpus) {
    argv.push_back(spec.type == PodType::kWorker ? "--gres=gpu:1"
                                                 : "--gres=none");
  }
  // A step's resources are not free for others.
  if (slurm.in_step) argv.push_back("--overlap");
  argv.insert(argv.end(), {"sh", "-c", kScript, "sh"});
  argv.insert(argv.end(), spec.argv.begin(), spec.argv.end());
  return argv;
}

absl::StatusOr<PodProxy::Place> ParseStep(const std::string& job_id,
                                          const std::string& host,
                                          const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  int64_t step = 0;
  PodProxy::Place place;
  if (words.size() != 4 || words[0] != kMark ||
      !absl::SimpleAtoi(words[1], &step) || step < 0 ||
      !absl::SimpleAtoi(words[2], &place.pid) || place.pid <= 0) {
    return absl::DataLossError(
        absl::StrCat("srun: expected the step's number, got: ", line));
  }
  place.id = absl::StrCat(job_id, ".", step);
  // A pid means nothing on another node.
  if (words[3] != host) place.pid = 0;
  return place;
}

}  // namespace

std::vector<std::string> SrunEnvironment(
    const std::vector<std::string>& environment) {
  std::vector<std::string> kept;
  for (const std::string& entry : environment) {
    const bool slurm = absl::StartsWith(entry, "SLURM_") ||
                       absl::StartsWith(entry, "SLURMD_") ||
                       absl::StartsWith(entry, "SRUN_");
    if (!slurm || absl::StartsWith(entry, "SLURM_CONF=")) kept.push_back(entry);
  }
  return kept;
}

PodProxy StepProxy(const SlurmOptions& slurm, const std::string& host) {
  PodProxy proxy;
  proxy.start = [slurm](const PodSpec& spec) {
    return StepCommand(slurm, spec);
  };
  proxy.parse = [job = slurm.job_id, host](const std::string& line) {
    return ParseStep(job, host, line);
  };
  proxy.terminate = [](const std::string& step) {
    return std::vector<std::string>{"scancel", "--signal=TERM", step};
  };
  proxy.kill = [](const std::string& step) {
    return std::vector<std::string>{"scancel", "--signal=KILL", step};
  };
  proxy.waiting =
      "srun has not started it yet; it waits for a free task of the allocation";
  return proxy;
}

absl::StatusOr<std::unique_ptr<PodBackend>> StartSlurmPodBackend(
    const SlurmOptions& slurm, const std::vector<std::string>& environment,
    PodEventSink sink) {
  utsname name = {};
  uname(&name);
  LocalPodBackend::Options options;
  options.environment = SrunEnvironment(environment);
  options.proxy = StepProxy(slurm, name.nodename);
  ELASTICDL_ASSIGN_OR_RETURN(
      auto backend,
      LocalPodBackend::Start(std::move(options), std::move(sink)));
  return backend;
}

}  // namespace elasticdl::master
