#include "elasticdl/flags/slurm.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/process.h"

namespace elasticdl::flags {
namespace {

// Longer than a busy controller takes.
constexpr absl::Duration kPatience = absl::Seconds(20);

// The number in "4" or "a100:4"; `fallback` for anything else.
int64_t Number(absl::string_view text, int64_t fallback) {
  const size_t colon = text.rfind(':');
  if (colon != text.npos) text.remove_prefix(colon + 1);
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 0 ? number : fallback;
}

// The numbers in "4(x2),2": 4, 4, 2. Nothing if it is not such a list.
std::vector<int64_t> Counts(absl::string_view text) {
  std::vector<int64_t> counts;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int64_t times = 1;
    if (const size_t at = part.find("(x"); at != part.npos) {
      absl::string_view repeat = part.substr(at + 2);
      if (!absl::ConsumeSuffix(&repeat, ")") ||
          !absl::SimpleAtoi(repeat, &times) || times < 1 || times > 1000000) {
        return {};
      }
      part = part.substr(0, at);
    }
    const int64_t count = Number(part, -1);
    if (count < 0) return {};
    counts.insert(counts.end(), static_cast<size_t>(times), count);
  }
  return counts;
}

// The values of Key=value in what scontrol prints.
std::vector<absl::string_view> Values(absl::string_view text,
                                      absl::string_view key) {
  std::vector<absl::string_view> values;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"))) {
    if (absl::ConsumePrefix(&word, key) && absl::ConsumePrefix(&word, "=")) {
      values.push_back(word);
    }
  }
  return values;
}

// How many CPUs of Slurm a core is. Nodes may differ: the most.
int64_t CpusPerCore(absl::string_view nodes) {
  const auto cpus = Values(nodes, "CPUTot");
  const auto sockets = Values(nodes, "Sockets");
  const auto cores = Values(nodes, "CoresPerSocket");
  int64_t most = 1;
  if (cpus.size() != sockets.size() || cpus.size() != cores.size()) return most;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const int64_t all = Number(sockets[i], 0) * Number(cores[i], 0);
    if (all > 0) most = std::max(most, Number(cpus[i], 0) / all);
  }
  return most;
}

std::string Scontrol(const std::vector<std::string>& what) {
  process::RunOptions run;
  run.argv = {"scontrol", "show"};
  run.argv.insert(run.argv.end(), what.begin(), what.end());
  run.timeout = kPatience;
  const auto result = process::Run(run);
  return result.ok() && result->code == 0 ? result->output : "";
}

}  // namespace

int64_t SlurmAllocation::StepCpus() const {
  return (cpus_per_task + cpus_per_core - 1) / cpus_per_core * cpus_per_core;
}

int64_t SlurmAllocation::Steps() const {
  if (node_cpus.empty() || in_step) return std::numeric_limits<int64_t>::max();
  int64_t steps = 0;
  for (const int64_t cpus : node_cpus) steps += cpus / StepCpus();
  return steps;
}

int64_t SlurmAllocation::Workers(int64_t servers) const {
  const int64_t free = gpus > 0 ? std::min(gpus, Steps() - servers)
                                : std::min(tasks, Steps()) - servers;
  return std::max<int64_t>(1, free);
}

std::string SlurmAllocation::Owner() const {
  return absl::StrCat("job ", job_id, " of Slurm",
                      cluster.empty() ? "" : " on ", cluster);
}

std::optional<SlurmAllocation> FindSlurmAllocation(
    const std::function<std::string(const std::string&)>& variable) {
  SlurmAllocation found;
  found.job_id = variable("SLURM_JOB_ID");
  if (found.job_id.empty()) return std::nullopt;
  found.cluster = variable("SLURM_CLUSTER_NAME");
  const int64_t nodes =
      std::max<int64_t>(1, Number(variable("SLURM_JOB_NUM_NODES"), 1));
  // Without --ntasks there is one for each node.
  found.tasks = std::max<int64_t>(1, Number(variable("SLURM_NTASKS"), nodes));
  found.cpus_per_task =
      std::max<int64_t>(1, Number(variable("SLURM_CPUS_PER_TASK"), 1));
  found.gpus =
      Number(variable("SLURM_GPUS"),
             nodes * Number(variable("SLURM_GPUS_ON_NODE"),
                            Number(variable("SLURM_GPUS_PER_NODE"), 0)));
  // The numbers of special steps (batch, interactive) are near 2^32.
  const int64_t step = Number(variable("SLURM_STEP_ID"), -1);
  found.in_step = step >= 0 && step < 0xfffffff0;
  found.restarts = Number(variable("SLURM_RESTART_COUNT"), 0);
  found.node_list = variable("SLURM_JOB_NODELIST");
  if (nodes == 1) found.only_node = found.node_list;
  found.node_cpus = Counts(variable("SLURM_JOB_CPUS_PER_NODE"));
  found.whole_cores = variable("SLURM_HINT") == "nomultithread" ||
                      variable("SLURM_THREADS_PER_CORE") == "1";
  return found;
}

void AddSlurmFacts(const std::string& job, const std::string& nodes,
                   SlurmAllocation& allocation) {
  if (allocation.gpus == 0) {
    for (const absl::string_view list : Values(job, "JOB_GRES")) {
      for (const absl::string_view one : absl::StrSplit(list, ',')) {
        if (!absl::StartsWith(one, "gpu:")) continue;
        allocation.gpus += Number(one.substr(0, one.find('(')), 0);
      }
    }
  }
  // With one thread for each core, a CPU of a task is a core.
  if (!allocation.whole_cores) allocation.cpus_per_core = CpusPerCore(nodes);
}

void AskSlurm(SlurmAllocation& allocation) {
  const bool knows_gpus = allocation.gpus > 0;
  AddSlurmFacts(
      knows_gpus ? "" : Scontrol({"job", "--details", allocation.job_id}),
      Scontrol({"node", allocation.node_list}), allocation);
}

std::optional<SlurmAllocation> FindSlurmAllocation() {
  // A container in an allocation may have its variables, but not its programs.
  for (const absl::string_view dir : absl::StrSplit(GetEnv("PATH"), ':')) {
    if (FileExists(JoinPath(std::string(dir), "srun"))) {
      return FindSlurmAllocation(GetEnv);
    }
  }
  return std::nullopt;
}

}  // namespace elasticdl::flags
