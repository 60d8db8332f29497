// Reads a pod's status, with type guards: it is the server's data.
#include "elasticdl/cluster/pod_view.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::cluster {
namespace {

const Json& Nothing() {
  static const auto* nothing = new Json();
  return *nothing;
}

// The value at a JSON pointer such as "/status/phase".
const Json& At(const Json& object, const std::string& pointer) {
  const Json::json_pointer where(pointer);
  return object.contains(where) ? object[where] : Nothing();
}

std::string TextAt(const Json& object, const std::string& pointer) {
  const Json& value = At(object, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

int64_t NumberAt(const Json& object, const char* pointer, int64_t fallback) {
  const Json& value = At(object, pointer);
  return value.is_number_integer() ? value.get<int64_t>() : fallback;
}

// "reason: message", or the one that is there.
std::string Words(const Json& object, const char* reason, const char* message) {
  const std::string first = TextAt(object, reason);
  const std::string second = TextAt(object, message);
  return absl::StrCat(first, first.empty() || second.empty() ? "" : ": ",
                      second);
}

void ReadEnd(const Json& terminated, PodView* view) {
  view->started = true;
  view->exit_code =
      static_cast<int>(NumberAt(terminated, "/exitCode", view->exit_code));
  const std::string reason = TextAt(terminated, "/reason");
  // These two say no more than the exit code.
  view->end_reason = reason == "Error" || reason == "Completed" ? "" : reason;
  if (reason == "ContainerCannotRun" || reason == "StartError") {
    view->started = false;
    view->end_reason = Words(terminated, "/reason", "/message");
  }
}

void ReadContainer(const Json& container, PodView* view) {
  view->restarts = NumberAt(container, "/restartCount", 0);
  if (const Json& last = At(container, "/lastState/terminated");
      last.is_object()) {
    ReadEnd(last, view);
  }
  const Json& state = At(container, "/state");
  if (const Json& terminated = At(state, "/terminated");
      terminated.is_object()) {
    ReadEnd(terminated, view);
  } else if (At(state, "/running").is_object()) {
    view->running = true;
    view->started = true;
  } else if (At(state, "/waiting").is_object()) {
    const std::string reason = TextAt(state, "/waiting/reason");
    // The ordinary way of a container that is about to run.
    if (reason != "ContainerCreating" && reason != "PodInitializing") {
      view->waiting = Words(state, "/waiting/reason", "/waiting/message");
    }
  }
}

// What the master noted; -1: nothing.
int NoteOfExitCode(const Json& pod) {
  int code = -1;
  const std::string note =
      TextAt(pod, "/metadata/annotations/elasticdl~1exit-code");
  return absl::SimpleAtoi(note, &code) ? code : -1;
}

std::string SchedulerWords(const Json& pod) {
  for (const Json& condition : At(pod, "/status/conditions")) {
    if (TextAt(condition, "/type") == "PodScheduled" &&
        TextAt(condition, "/status") == "False") {
      return Words(condition, "/reason", "/message");
    }
  }
  return "";
}

}  // namespace

bool PodView::Ended() const {
  if (phase == "Succeeded" || phase == "Failed") return true;
  // The job is over; the kubelet has not ended the pod yet.
  return !outcome.empty() && !running;
}

int PodView::ExitCode() const {
  if (outcome == "succeeded" || (outcome.empty() && phase == "Succeeded")) {
    return 0;
  }
  if (outcome_exit_code > 0) return outcome_exit_code;
  return exit_code > 0 ? exit_code : 1;
}

std::string PodView::State() const {
  if (!outcome.empty()) return outcome;
  if (deleting && !Ended()) return "being deleted";
  // Kubernetes calls a pod running whose container ends again and again.
  if (phase == "Running" && !running && restarts > 0) return "restarting";
  return absl::AsciiStrToLower(phase.empty() ? "unknown" : phase);
}

PodView ViewPod(const Json& pod) {
  PodView view;
  view.name = TextAt(pod, "/metadata/name");
  view.uid = TextAt(pod, "/metadata/uid");
  view.job_name = TextAt(pod, absl::StrCat("/metadata/labels/", kJobLabel));
  view.type = TextAt(pod, absl::StrCat("/metadata/labels/", kTypeLabel));
  view.node = TextAt(pod, "/spec/nodeName");
  view.phase = TextAt(pod, "/status/phase");
  view.deleting = At(pod, "/metadata/deletionTimestamp").is_string();
  view.created = TextAt(pod, "/metadata/creationTimestamp");
  // '/' in an annotation's name is ~1 in a JSON pointer.
  view.outcome = TextAt(pod, "/metadata/annotations/elasticdl~1outcome");
  view.outcome_message =
      TextAt(pod, "/metadata/annotations/elasticdl~1message");
  int exit_code = 0;
  if (absl::SimpleAtoi(
          TextAt(pod, "/metadata/annotations/elasticdl~1exit-code"),
          &exit_code)) {
    view.outcome_exit_code = exit_code;
  }
  const Json& containers = At(pod, "/status/containerStatuses");
  if (containers.is_array() && !containers.empty()) {
    ReadContainer(containers[0], &view);
  } else if (view.phase == "Pending") {
    view.waiting = SchedulerWords(pod);
  }
  if (view.phase == "Succeeded" || view.phase == "Failed") {
    // Kubelet 1.20 was seen to leave the container of a pod that it ended by
    // its deadline as "running" for ever.
    view.running = false;
  }
  if (const int note = NoteOfExitCode(pod); note >= 0) view.exit_code = note;
  // The deadline is how the master of a failed job ends its pod, not why.
  if (std::string words = Words(pod, "/status/reason", "/status/message");
      view.phase == "Failed" && view.outcome.empty() && !words.empty() &&
      view.end_reason.empty()) {
    view.end_reason = std::move(words);
  }
  return view;
}

}  // namespace elasticdl::cluster
