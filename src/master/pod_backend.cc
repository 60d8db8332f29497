#include "pod_backend.h"

#include <signal.h>
#include <string.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace elasticdl::master {
namespace {

// How a shell and a container report a signal.
bool EndedBySignal(const PodEvent& event, int signal) {
  return event.signal == signal || event.exit_code == 128 + signal;
}

// Somebody took the pod away: no fault of what runs in it.
bool TakenAway(const PodEvent& event) {
  switch (event.reason) {
    case PodEndReason::kOomKilled:
      return false;
    case PodEndReason::kDeleted:
    case PodEndReason::kEvicted:
    case PodEndReason::kPreempted:
      return true;
    default:
      return event.phase == PodPhase::kDeleted ||
             EndedBySignal(event, SIGKILL) || EndedBySignal(event, SIGTERM);
  }
}

}  // namespace

bool EndedByCrash(const PodEvent& event) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGSYS}) {
    if (EndedBySignal(event, signal)) return true;
  }
  return false;
}

const char* PodTypeName(PodType type) {
  return type == PodType::kWorker ? "worker" : "ps";
}

std::string PodName(PodType type, const std::string& job_name, int64_t id,
                    int64_t attempt) {
  std::string name =
      absl::StrCat("elasticdl-", PodTypeName(type), "-", job_name, "-", id);
  if (attempt > 0) absl::StrAppend(&name, "-r", attempt);
  return name;
}

int64_t PodAttempt(const std::string& name) {
  // Ids are numbers, so no first attempt ends with -r<number>.
  const size_t dash = name.rfind("-r");
  int64_t attempt = 0;
  if (dash == std::string::npos ||
      !absl::SimpleAtoi(name.substr(dash + 2), &attempt) || attempt < 0) {
    return 0;
  }
  return attempt;
}

bool ParsePodName(const std::string& name, const std::string& job_name,
                  PodEvent* pod) {
  for (const PodType type : {PodType::kWorker, PodType::kPs}) {
    absl::string_view rest = name;
    const std::string prefix =
        absl::StrCat("elasticdl-", PodTypeName(type), "-", job_name, "-");
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    pod->attempt = PodAttempt(std::string(rest));
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('-')), &pod->id)) continue;
    pod->name = name;
    pod->type = type;
    // Also refuses what only looks like one.
    return PodName(type, job_name, pod->id, pod->attempt) == name;
  }
  return false;
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
         a.refused == b.refused && a.restarts == b.restarts &&
         a.restart_reason == b.restart_reason &&
         a.restart_failure == b.restart_failure && a.type == b.type &&
         a.id == b.id && a.attempt == b.attempt && a.priority == b.priority;
}

bool IsFinal(PodPhase phase) {
  return phase != PodPhase::kPending && phase != PodPhase::kRunning;
}

bool IsProcessFailure(const PodEvent& event) {
  return IsFinal(event.phase) && event.phase != PodPhase::kSucceeded &&
         !TakenAway(event);
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
