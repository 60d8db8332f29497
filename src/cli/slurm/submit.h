// elasticdl train --slurm: a job that sbatch submits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {

// Options of sbatch as they stand in the script, and what the script runs.
struct BatchJob {
  std::string job_name;
  // Where the output goes; %j is the number of the Slurm job.
  std::string output;
  // Places to ask for; the options may say otherwise.
  int64_t tasks = 1;
  // The user's.
  std::string options;
  // Program and arguments.
  std::vector<std::string> argv;
};

// The script. It passes SIGTERM on to the program, which saves the model, and,
// if the options have --requeue, puts a suspended job back into the queue.
// Pure.
std::string BatchScript(const BatchJob& job);

// Submits `command` (train, evaluate, predict) with checked flags. Returns the
// exit code: 0, or 1 with a message.
int SubmitToSlurm(const std::string& command, const flags::JobFlags& flags,
                  const flags::FlagSet& set);

}  // namespace elasticdl::cli
