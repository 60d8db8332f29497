#include "elasticdl/experiment/cluster_job.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/text.h"
#include "event_line.h"

namespace elasticdl::experiment {
namespace {

// Names of pods are "elasticdl-worker-<job>-<id>" and have at most 63 letters
// (flags::kMaxJobName); the run's id must fit whole.
constexpr size_t kMostPlanLetters = 29;
// Of a job that shares the cluster with others; it is in the same name.
constexpr size_t kMostJobLetters = 12;
// What a log may take from the master to here. A larger difference between the
// clocks is one of the clocks.
constexpr double kSlowestLog = 1;

// Letters that names of pods may have, none of them '-' at an end.
std::string PodLetters(const std::string& text, size_t most) {
  std::string name;
  for (const char c : text) {
    const bool good = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (good) {
      name += absl::ascii_tolower(static_cast<unsigned char>(c));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), most));
  while (absl::EndsWith(name, "-")) name.pop_back();
  return name;
}

absl::Status CheckSharing(const Sharing& sharing) {
  std::set<std::string> names;
  for (const SharedJob& job : sharing.jobs) {
    const std::string name = PodLetters(job.name, kMostJobLetters);
    if (name.empty() || !names.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "on a cluster, jobs need names that differ in their first ",
          kMostJobLetters, " letters or digits: '", job.name, "'"));
    }
    if (job.min_workers > 1 && sharing.service.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job ", job.name,
          ": min_workers has no effect on a cluster, whose scheduler starts "
          "as many workers of an elastic job as fit"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool OnCluster(const Settings& flags) {
  for (const char* name : {"image", "image_name", "docker_image_prefix"}) {
    const auto it = flags.find(name);
    if (it != flags.end() && !it->second.empty()) return true;
  }
  return false;
}

std::string ClusterJobName(const std::string& plan, const std::string& run,
                           const std::string& job) {
  const std::string suffix =
      job.empty() ? "" : absl::StrCat("-", PodLetters(job, kMostJobLetters));
  std::string name = PodLetters(plan, kMostPlanLetters - suffix.size());
  // A name of a Service begins with a letter.
  if (name.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(name[0])))
    name = absl::StrCat("exp", name.empty() ? "" : "-", name);
  return absl::StrCat(name, "-", run, suffix);
}

absl::Status CheckOnCluster(const Plan& plan, const Run& run) {
  if (run.peer != kElasticdl) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", run.peer,
                     " runs on this machine only: leave out --image, or the "
                     "peer"));
  }
  if (plan.shared()) return CheckSharing(plan.sharing);
  for (const Action& action : run.actions) {
    if (action.kind != ActionKind::kStop) continue;
    return absl::InvalidArgumentError(
        "a cluster cannot stop a process and let it continue: use kill or "
        "preempt instead of stop, or leave out --image");
  }
  return absl::OkStatus();
}

double KillTime(absl::string_view output, double otherwise) {
  return EventLine(output.substr(0, output.find('\n')))
      .Number("time", otherwise);
}

MasterLog::Lines MasterLog::Take(absl::string_view bytes) {
  Lines lines;
  absl::StrAppend(&rest_, bytes);
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos;
       end = rest_.find('\n', begin)) {
    TakeLine(absl::string_view(rest_).substr(begin, end - begin), &lines);
    begin = end + 1;
  }
  rest_.erase(0, begin);
  return lines;
}

void MasterLog::TakeLine(absl::string_view line, Lines* lines) {
  // Most lines are for people.
  if (!absl::StrContains(line, '{')) return;
  const EventLine json(line);
  if (json.Number("time") > 0 && !json.Text("event").empty()) {
    if (json.Is("job_start")) ++starts_;
    if (json.Is("job_end")) ended_ = true;
    if (json.Is("progress")) {
      records_ = static_cast<int64_t>(json.Number("records_done"));
    }
    lines->events.emplace_back(line);
  } else if (json.Has("cut_back") || (json.Has("epoch") && json.Has("shard"))) {
    lines->audit.emplace_back(line);
  } else if (absl::StrContains(line, "{\"time\":") ||
             absl::StrContains(line, "{\"epoch\":") ||
             absl::StrContains(line, "{\"cut_back\":")) {
    // --log_format=json writes objects with a time, too. The summary of a large
    // model is longer than what a node keeps in one piece, and nothing is
    // measured by it.
    if (!json.valid() && !absl::StrContains(line, "\"event\":\"model\"")) {
      ++damaged_;
    }
  }
}

LedgerCheck CheckLogLedger(const std::string& audit, const MasterLog& log,
                           bool finished) {
  LedgerCheck check = CheckLedger(audit, finished);
  if (!check.exact) return check;
  if (log.starts() > 1) {
    check.problem =
        "the master was restarted: what it wrote again is twice in its log";
  } else if (log.damaged() > 0) {
    check.problem = absl::StrCat(Count(log.damaged(), "damaged line"),
                                 " in the master's log");
  } else if (!log.ended()) {
    check.problem = "the end of the master's log is missing";
  } else if (check.records < log.records()) {
    check.problem =
        absl::StrCat("the master's log tells of ", check.records,
                     " records of ", log.records(), ": lines are missing");
  }
  check.exact = check.problem.empty();
  return check;
}

void ClockOffset::OnEvent(double time, double seen) {
  least_ = any_ ? std::min(least_, seen - time) : seen - time;
  any_ = true;
}

double ClockOffset::seconds() const {
  return least_ >= 0 && least_ <= kSlowestLog ? 0 : least_;
}

}  // namespace elasticdl::experiment
