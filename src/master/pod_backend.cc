#include "pod_backend.h"

#include <string.h>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {

const char* PodTypeName(PodType type) {
  return type == PodType::kWorker ? "worker" : "ps";
}

std::string PodName(PodType type, const std::string& job_name, int64_t id) {
  return absl::StrCat("elasticdl-", PodTypeName(type), "-", job_name, "-", id);
}

const char* PodPhaseName(PodPhase phase) {
  switch (phase) {
    case PodPhase::kPending:
      return "Pending";
    case PodPhase::kRunning:
      return "Running";
    case PodPhase::kSucceeded:
      return "Succeeded";
    case PodPhase::kFailed:
      return "Failed";
    case PodPhase::kDeleted:
      return "Deleted";
  }
  return "Unknown";
}

const char* PodEndReasonName(PodEndReason reason) {
  switch (reason) {
    case PodEndReason::kNone:
      return "None";
    case PodEndReason::kError:
      return "Error";
    case PodEndReason::kOomKilled:
      return "OOMKilled";
    case PodEndReason::kEvicted:
      return "Evicted";
    case PodEndReason::kPreempted:
      return "Preempted";
    case PodEndReason::kDeleted:
      return "Deleted";
  }
  return "Unknown";
}

bool operator==(const PodEvent& a, const PodEvent& b) {
  return a.name == b.name && a.phase == b.phase && a.pid == b.pid &&
         a.exit_code == b.exit_code && a.signal == b.signal &&
         a.reason == b.reason && a.message == b.message &&
         a.create_error == b.create_error && a.terminating == b.terminating &&
         a.type == b.type && a.id == b.id && a.priority == b.priority;
}

bool IsFinal(PodPhase phase) {
  return phase != PodPhase::kPending && phase != PodPhase::kRunning;
}

std::string DescribePodEnd(const PodEvent& event) {
  std::string text;
  if (event.reason != PodEndReason::kNone &&
      event.reason != PodEndReason::kError) {
    text = PodEndReasonName(event.reason);
  }
  const char* comma = text.empty() ? "" : ", ";
  if (event.signal != 0) {
    const char* name = sigabbrev_np(event.signal);
    absl::StrAppend(&text, comma, "signal ", event.signal);
    if (name != nullptr) absl::StrAppend(&text, " (SIG", name, ")");
  } else if (event.exit_code >= 0) {
    absl::StrAppend(&text, comma, "exit code ", event.exit_code);
  } else if (text.empty()) {
    text = "unknown cause";
  }
  if (!event.message.empty()) absl::StrAppend(&text, ": ", event.message);
  return text;
}

}  // namespace elasticdl::master
