#include "kube_pod.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/cluster/access.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::master {
namespace {

using kube::Json;
using kube::ListAt;
using kube::NumberAt;
using kube::TextAt;

// The end of a container's termination message, for one log line.
constexpr size_t kMaxLastWords = 300;

// {reason, message} as "reason: message"; either may be empty.
std::string Words(const std::string& reason, const std::string& message) {
  if (reason.empty() || absl::StartsWith(message, reason)) return message;
  if (message.empty()) return reason;
  return absl::StrCat(reason, ": ", message);
}

// status.reason and .message; "Evicted" alone adds nothing to PodEndReasonName.
std::string WhatTheClusterSays(const Json& pod) {
  std::string reason = TextAt(pod, "/status/reason");
  if (reason == PodEndReasonName(PodEndReason::kEvicted)) reason.clear();
  return Words(
      reason,
      std::string(absl::StripAsciiWhitespace(TextAt(pod, "/status/message"))));
}

const Json* FindCondition(const Json& pod, const std::string& type) {
  for (const Json& condition : ListAt(pod, "/status/conditions")) {
    if (TextAt(condition, "/type") == type) return &condition;
  }
  return nullptr;
}

// A container that cannot start: ImagePullBackOff, CreateContainerConfigError,
// CrashLoopBackOff, … Not the normal states of a start.
std::string WhyNoContainer(const Json& pod) {
  for (const char* list :
       {"/status/initContainerStatuses", "/status/containerStatuses"}) {
    for (const Json& status : ListAt(pod, list)) {
      const std::string reason = TextAt(status, "/state/waiting/reason");
      if (reason.empty() || reason == "ContainerCreating" ||
          reason == "PodInitializing") {
        continue;
      }
      return Words(reason, TextAt(status, "/state/waiting/message"));
    }
  }
  return "";
}

std::string WhyPending(const Json& pod) {
  const Json* scheduled = FindCondition(pod, "PodScheduled");
  if (scheduled != nullptr && TextAt(*scheduled, "/status") == "False") {
    const std::string message = TextAt(*scheduled, "/message");
    return message.empty() ? TextAt(*scheduled, "/reason") : message;
  }
  return WhyNoContainer(pod);
}

// How the pod's main container ended; null if it has not.
const Json* MainEnd(const Json& pod, PodType type) {
  const Json* end = nullptr;
  for (const char* list :
       {"/status/containerStatuses", "/status/initContainerStatuses"}) {
    for (const Json& status : ListAt(pod, list)) {
      const auto state = status.find("state");
      if (!status.is_object() || state == status.end() || !state->is_object()) {
        continue;
      }
      const auto terminated = state->find("terminated");
      if (terminated == state->end() || !terminated->is_object()) continue;
      if (TextAt(status, "/name") == PodTypeName(type)) return &*terminated;
      // If there is none with that name, take the first that failed.
      if (end == nullptr || NumberAt(*end, "/exitCode") == 0) {
        end = &*terminated;
      }
    }
  }
  return end;
}

std::string LastWords(const Json& end) {
  const std::string message = TextAt(end, "/message");
  absl::string_view text = absl::StripAsciiWhitespace(message);
  if (text.size() > kMaxLastWords) {
    text.remove_prefix(text.size() - kMaxLastWords);
  }
  return std::string(text);
}

// Why the cluster says that it took the pod away; kNone if it does not say so.
PodEndReason TakenByCluster(const Json& pod, bool container_ended) {
  const std::string reason = TextAt(pod, "/status/reason");
  for (const char* word :
       {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"}) {
    if (reason == word) return PodEndReason::kEvicted;
  }
  if (reason == "Preempting" || reason == "Preempted") {
    return PodEndReason::kPreempted;
  }
  const Json* disruption = FindCondition(pod, "DisruptionTarget");
  if (disruption != nullptr && TextAt(*disruption, "/status") == "True") {
    return absl::StrContains(TextAt(*disruption, "/reason"), "Preempt")
               ? PodEndReason::kPreempted
               : PodEndReason::kEvicted;
  }
  // The node refused it (OutOfcpu, UnexpectedAdmissionError, …): none of its
  // containers ever ran. A deadline is handled separately; and the kubelet may
  // no longer know how the container of a pod that is being deleted ended.
  if (!container_ended && reason != "DeadlineExceeded" &&
      TextAt(pod, "/metadata/deletionTimestamp").empty()) {
    return PodEndReason::kEvicted;
  }
  return PodEndReason::kNone;
}

// How an end by Kubernetes' SIGTERM or SIGKILL, or an orderly exit, looks.
bool EndedAsAsked(const PodEvent& event) {
  return event.exit_code == 0 || event.exit_code == 137 ||
         event.exit_code == 143 || event.exit_code == -1;
}

void DescribeEnd(const Json& pod, bool failed, PodEvent& event) {
  const Json* end = MainEnd(pod, event.type);
  if (end != nullptr) {
    event.exit_code = static_cast<int>(NumberAt(*end, "/exitCode", -1));
    if (failed) event.message = LastWords(*end);
  } else if (!failed) {
    event.exit_code = 0;
  }
  const std::string said = WhatTheClusterSays(pod);
  event.phase = failed ? PodPhase::kFailed : PodPhase::kSucceeded;
  if (failed) {
    event.reason = TakenByCluster(pod, end != nullptr);
    event.refused = event.reason == PodEndReason::kEvicted &&
                    ListAt(pod, "/status/containerStatuses").empty();
    if (!said.empty()) event.message = said;
    if (event.reason == PodEndReason::kNone) {
      event.reason = end != nullptr && TextAt(*end, "/reason") == "OOMKilled"
                         ? PodEndReason::kOomKilled
                         : PodEndReason::kError;
    }
  }
  const bool explained = event.reason != PodEndReason::kNone &&
                         event.reason != PodEndReason::kError;
  if (event.terminating && !explained && EndedAsAsked(event)) {
    event.phase = PodPhase::kDeleted;
    event.reason = PodEndReason::kDeleted;
  }
}

// How a run of a container ended that the cluster then restarted.
PodEvent DescribeRun(const Json& end) {
  PodEvent event;
  event.phase = PodPhase::kFailed;
  event.exit_code = static_cast<int>(NumberAt(end, "/exitCode", -1));
  event.reason = TextAt(end, "/reason") == "OOMKilled"
                     ? PodEndReason::kOomKilled
                     : PodEndReason::kError;
  event.message = LastWords(end);
  return event;
}

void DescribeRestarts(const Json& pod, PodEvent& event) {
  const Json::json_pointer last("/lastState/terminated");
  for (const Json& status : ListAt(pod, "/status/containerStatuses")) {
    if (TextAt(status, "/name") != PodTypeName(event.type)) continue;
    event.restarts = NumberAt(status, "/restartCount");
    if (event.restarts == 0 || !status.contains(last)) return;
    const PodEvent run = DescribeRun(status[last]);
    event.restart_reason = DescribePodEnd(run);
    event.restart_failure = IsProcessFailure(run);
  }
}

}  // namespace

absl::StatusOr<Json> MakePod(const Json& pod_template, const PodSpec& spec,
                             const KubeJob& job) {
  return cluster::MakeReplicaPod(
      pod_template,
      {spec.name, PodTypeName(spec.type), spec.id, spec.priority, spec.env},
      job);
}

absl::Status ExplainRefusal(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::PermissionDeniedError(cluster::ExplainForbidden(
      std::string(status.message()), cluster::Party::kMaster));
}

PodEvent DescribePod(const Json& pod) {
  PodEvent event;
  event.name = TextAt(pod, "/metadata/name");
  const auto label = [&](const char* name) {
    return TextAt(pod, absl::StrCat("/metadata/labels/", name));
  };
  event.type =
      label(cluster::kTypeLabel) == "ps" ? PodType::kPs : PodType::kWorker;
  if (!absl::SimpleAtoi(label(cluster::kIndexLabel), &event.id) ||
      event.id < 0) {
    event.id = -1;
  }
  event.attempt = PodAttempt(event.name);
  event.priority = TextAt(pod, "/spec/priorityClassName");
  event.terminating = !TextAt(pod, "/metadata/deletionTimestamp").empty();
  const std::string phase = TextAt(pod, "/status/phase");
  if (phase == "Succeeded" || phase == "Failed") {
    DescribeEnd(pod, phase == "Failed", event);
  } else if (phase == "Running") {
    event.phase = PodPhase::kRunning;
    event.message = WhyNoContainer(pod);
    DescribeRestarts(pod, event);
  } else if (phase == "Unknown") {
    // Its node does not answer; the pod may still be running.
    event.phase = PodPhase::kRunning;
    event.message =
        Words(TextAt(pod, "/status/reason"), TextAt(pod, "/status/message"));
  } else {
    event.phase = PodPhase::kPending;
    event.message = WhyPending(pod);
  }
  return event;
}

PodEvent DescribeGonePod(const Json& pod) {
  PodEvent event = DescribePod(pod);
  if (event.phase != PodPhase::kPending && event.phase != PodPhase::kRunning) {
    return event;
  }
  const Json* end = MainEnd(pod, event.type);
  if (end != nullptr) {
    event.exit_code = static_cast<int>(NumberAt(*end, "/exitCode", -1));
  }
  event.phase = PodPhase::kDeleted;
  event.reason = TakenByCluster(pod, /*container_ended=*/true);
  if (event.reason == PodEndReason::kNone) {
    event.reason = PodEndReason::kDeleted;
  }
  event.message.clear();
  return event;
}

}  // namespace elasticdl::master
