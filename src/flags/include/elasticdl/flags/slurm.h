// The Slurm allocation that this process runs in, as its variables tell it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

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

  // Whose folder a job's is: the same after a requeue, and no other job's.
  std::string Owner() const;
  // How many workers it has room for besides so many parameter servers: one
  // for each GPU, else for each task. At least 1.
  int64_t Workers(int64_t servers) const;
};

// `variable` gives the value of a variable, "" for one that is not set. Nothing
// outside of an allocation.
std::optional<SlurmAllocation> FindSlurmAllocation(
    const std::function<std::string(const std::string&)>& variable);

// Of this process.
std::optional<SlurmAllocation> FindSlurmAllocation();

}  // namespace elasticdl::flags
