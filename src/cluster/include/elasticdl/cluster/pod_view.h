// The state of a job's pod, for the client. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cluster {

// Of the first container: pods of a job have one.
struct PodView {
  std::string name;
  std::string uid;
  std::string job_name;
  std::string type;  // master, worker, ps
  std::string node;
  // Pending, Running, Succeeded, Failed, Unknown.
  std::string phase;
  bool deleting = false;
  std::string created;  // RFC 3339
  // How often the container was started again.
  int64_t restarts = 0;
  bool running = false;
  // It has run at least once: there is a log.
  bool started = false;
  // Why it does not run: the scheduler's words, "ImagePullBackOff: …".
  // Empty when there is nothing to say.
  std::string waiting;
  // How its last run ended, or what the master noted; -1: not known.
  int exit_code = -1;
  // "OOMKilled", "Evicted: The node was low on …"; may be empty.
  std::string end_reason;
  // The master's notes on its job (annotations); empty until it has ended.
  std::string outcome;
  std::string outcome_message;
  int outcome_exit_code = -1;

  // No container of it will run again.
  bool Ended() const;
  // How the pod ended, for a process: the exit code that the master noted, or
  // the container's, or 0 or 1 by outcome and phase when neither is known.
  int ExitCode() const;
  // succeeded, failed, stopped, …; before the end pending, running, or
  // restarting when the container has ended and is to be started again.
  std::string State() const;
};

// Fields that are missing or of another type stay empty.
PodView ViewPod(const Json& pod);

}  // namespace elasticdl::cluster
