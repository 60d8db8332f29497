// The pod manager's decisions, and its pods as shown to people.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "pod_backend.h"

namespace elasticdl::master {

struct PodDecision {
  enum class Kind {
    kCreate,   // create pod `name`; on error call CreateFailed
    kDelete,   // delete pod `name` with `grace`; NOT_FOUND is no error
    kEnded,    // for the record: the pod has ended, for this reason
    kDelayed,  // for the record: the next try comes at `at`, or (infinite) the
               // pod exists and the cluster does not get it to run
    kGaveUp,   // for the record: this slot is not launched again
  };
  Kind kind = Kind::kCreate;
  PodType type = PodType::kWorker;
  std::string name;
  int64_t id = 0;
  // kCreate: how many pods this id has had before. Always 0 for workers.
  int64_t attempt = 0;
  // kCreate.
  std::string priority;
  // kCreate: the id that this pod replaces (for a server its own); -1: the
  // first pod of its slot, or another attempt to create the same pod.
  int64_t replaces = -1;
  // kDelete.
  absl::Duration grace;
  // kDelayed.
  absl::Time at;
  // kEnded: it failed by itself; its tasks count a failure (design: preemption
  // never does).
  bool process_failure = false;
  // kEnded: the master had deleted it for a reason other than a hang, or it had
  // announced that it leaves.
  bool asked = false;
  // kEnded: it was deleted by a decision of this manager.
  bool deleted = false;
  std::string reason;
};

using PodDecisions = std::vector<PodDecision>;

const char* PodDecisionKindName(PodDecision::Kind kind);

// One pod as people see it.
struct PodInfo {
  std::string name;
  int64_t id = 0;
  PodType type = PodType::kWorker;
  std::string priority;
  // Waiting, Pending, Running, Terminating.
  std::string state;
  pid_t pid = 0;
  // Real failures of its slot so far.
  int64_t failures = 0;
  // Why it does not run, in the cluster's words. May be empty.
  std::string message;
};

}  // namespace elasticdl::master
