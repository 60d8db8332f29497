// Waits for a job on a cluster and prints the master's log.
#pragma once

#include <string>

#include "elasticdl/kube/client.h"
#include "elasticdl/signals.h"

namespace elasticdl::cli {

struct FollowOptions {
  // For messages: "elasticdl train".
  std::string command;
  std::string job_name;
  // The master pod's uid: another pod with its name is another job.
  std::string uid;
};

// Prints why the master pod waits, then its log, until the job has ended.
// Returns its exit code. A signal detaches (128 + its number); the job
// continues.
int FollowJob(kube::Client& client, const FollowOptions& options,
              process::SignalWatcher& signals);

// The commands with which the user can look at the job later.
std::string ComeBack(const std::string& job_name,
                     const std::string& name_space);

}  // namespace elasticdl::cli
