// The Slurm allocation that this process runs in, as its variables tell it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace elasticdl::flags {

struct SlurmAllocation {
  std::string job_id;
  // The cluster that has numbered the job; may be empty.
  std::string cluster;
  int64_t tasks = 1;
  int64_t cpus_per_task = 1;
  // All that the job has; 0 = none.
  int64_t gpus = 0;
  // This process is in a step, whose resources other steps must share. (The
  // batch script and the shell of salloc are in none.)
  bool in_step = false;
  // How often Slurm has requeued the job.
  int64_t restarts = 0;
  // The name of the only node; empty when there are several.
  std::string only_node;
  // As Slurm writes it: "node[1-3]".
  std::string node_list;
  // The job's CPUs on each node; empty: not known.
  std::vector<int64_t> node_cpus;
  // The job uses one hardware thread of each core.
  bool whole_cores = false;
  // Steps get whole cores, and with hardware threads a core is several CPUs.
  int64_t cpus_per_core = 1;

  // Whose folder a job's is: the same after a requeue, and no other job's.
  std::string Owner() const;
  // The CPUs that a step of one task gets.
  int64_t StepCpus() const;
  // How many such steps fit.
  int64_t Steps() const;
  // How many workers it has room for besides so many parameter servers: one
  // for each GPU, else for each task, but no more than steps. At least 1.
  int64_t Workers(int64_t servers) const;
};

// `variable` gives the value of a variable, "" for one that is not set. Nothing
// outside of an allocation.
std::optional<SlurmAllocation> FindSlurmAllocation(
    const std::function<std::string(const std::string&)>& variable);

// Of this process.
std::optional<SlurmAllocation> FindSlurmAllocation();

// What the variables do not tell: GPUs (salloc --gres sets none) and hardware
// threads. From what `scontrol show job --details` and `scontrol show node`
// print; what cannot be understood changes nothing.
void AddSlurmFacts(const std::string& job, const std::string& nodes,
                   SlurmAllocation& allocation);

// Asks the controller for that.
void AskSlurm(SlurmAllocation& allocation);

}  // namespace elasticdl::flags
