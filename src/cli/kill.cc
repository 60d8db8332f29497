#include "kill.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"

namespace elasticdl::cli {
namespace {

constexpr char kKillGroup[] = "Options";

// The pods of a job, from the answer of its master.
absl::StatusOr<std::vector<DoomedPod>> PodsOf(JobHandle& job) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string body, job.Status());
  const nlohmann::json status = ParseJson(body);
  std::vector<DoomedPod> pods;
  if (!status.is_object() || !status.contains("pods") ||
      !status["pods"].is_array()) {
    return pods;
  }
  for (const nlohmann::json& pod : status["pods"]) {
    if (!pod.is_object() || !pod.contains("name") || !pod["name"].is_string()) {
      continue;
    }
    DoomedPod one;
    one.name = pod["name"];
    if (pod.contains("pid") && pod["pid"].is_number_integer()) {
      one.pid = pod["pid"];
    }
    pods.push_back(std::move(one));
  }
  return pods;
}

// All or none of them: NOT_FOUND names the pods that there are.
absl::StatusOr<std::vector<DoomedPod>> Choose(
    const std::vector<DoomedPod>& pods,
    const std::vector<std::string>& wanted) {
  std::vector<DoomedPod> chosen;
  for (const std::string& one : wanted) {
    const size_t before = chosen.size();
    for (const DoomedPod& pod : pods) {
      if (MatchesPod(pod.name, one)) chosen.push_back(pod);
    }
    if (chosen.size() > before && !one.empty()) continue;
    const auto name = [](std::string* out, const DoomedPod& pod) {
      out->append(pod.name);
    };
    return absl::NotFoundError(absl::StrCat(
        "no pod '", one,
        "' is running; there are: ", absl::StrJoin(pods, ", ", name)));
  }
  return chosen;
}

void Tell(const DoomedPod& pod, absl::Time when, bool json) {
  const double seconds = static_cast<double>(absl::ToUnixMicros(when)) / 1e6;
  if (json) {
    nlohmann::ordered_json line = {{"pod", pod.name}, {"time", seconds}};
    std::printf("%s\n", JsonText(line).c_str());
  } else {
    std::printf("%s: killed\n", pod.name.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int KillCommand(const std::vector<std::string>& args, const JobFinder& find,
                const PodKiller& kill) {
  flags::FlagSet set(
      "elasticdl kill",
      "Kills workers or parameter servers of a job, to see it recover: "
      "SIGKILL, or on a cluster the deletion of the pod without grace.");
  JobChoice choice;
  choice.AddTo(&set);
  bool notice = false;
  bool json = false;
  std::vector<std::string> wanted;
  set.Add("notice", &notice,
          flags::Info(kKillGroup,
                      "Let it leave in order, as a preemption does: SIGTERM, "
                      "or on a cluster the ordinary deletion of the pod."));
  set.Add("json", &json,
          flags::Info(kKillGroup,
                      "Print the name of each pod and the time of its kill in "
                      "seconds since 1970, as JSON."));
  set.AddPositional("POD", &wanted, 1,
                    "worker-0, ps-0, a number (a worker) or the name of a pod");
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = find(choice);
  if (!job.ok()) return Fail(set, job.status());
  const auto pods = PodsOf(**job);
  if (!pods.ok()) return Fail(set, pods.status());
  const auto chosen = Choose(*pods, wanted);
  if (!chosen.ok()) return Fail(set, chosen.status());
  for (const DoomedPod& pod : *chosen) {
    const absl::Time when = absl::Now();
    const absl::Status status = kill(choice, pod, notice);
    if (!status.ok()) return Fail(set, Annotate(status, pod.name));
    Tell(pod, when, json);
  }
  return 0;
}

}  // namespace elasticdl::cli
