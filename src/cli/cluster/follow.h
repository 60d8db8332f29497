// Waiting for a job on a cluster, with the master's log on standard output.
#pragma once

#include <string>

#include "elasticdl/kube/client.h"
#include "elasticdl/signals.h"

namespace elasticdl::cli {

struct FollowOptions {
  // For messages: "elasticdl train".
  std::string command;
  std::string job_name;
  // Of the master pod; another one of that name is another job.
  std::string uid;
};

// Shows why the master pod waits, then its log, until the job has ended: its
// exit code. A signal detaches (128 + its number); the job goes on.
int FollowJob(kube::Client& client, const FollowOptions& options,
              process::SignalWatcher& signals);

// The commands by which one comes back to a job.
std::string ComeBack(const std::string& job_name,
                     const std::string& name_space);

}  // namespace elasticdl::cli
