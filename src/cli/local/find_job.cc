#include "local/find_job.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/suggest.h"

namespace elasticdl::cli {
namespace {

// More names than these are hard to read; `elasticdl list` has them all.
constexpr size_t kMostNames = 5;

struct KnownJobs {
  std::vector<jobdir::JobDir> running;
  // The one that ended last comes first.
  std::vector<jobdir::JobDir> ended;
};

std::filesystem::file_time_type LastEvent(const jobdir::JobDir& job) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(job.EventsFile(), error);
  return error ? std::filesystem::file_time_type::min() : time;
}

KnownJobs SortJobs(const std::vector<jobdir::JobDir>& all) {
  KnownJobs jobs;
  std::vector<std::pair<std::filesystem::file_time_type, jobdir::JobDir>> ended;
  for (const jobdir::JobDir& job : all) {
    if (job.IsRunning()) {
      jobs.running.push_back(job);
    } else {
      ended.emplace_back(LastEvent(job), job);
    }
  }
  std::stable_sort(
      ended.begin(), ended.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [time, job] : ended) jobs.ended.push_back(std::move(job));
  return jobs;
}

// "a, b and 3 more".
std::string JobNames(const std::vector<jobdir::JobDir>& jobs) {
  std::vector<std::string> names;
  for (const jobdir::JobDir& job : jobs) {
    if (names.size() < kMostNames) names.push_back(job.job_name());
  }
  const size_t more = jobs.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// What works on a job that has ended, too.
bool ReadsEnded(const std::string& command) {
  return command == "logs" || command == "report";
}

std::string CommandFor(const std::string& command, const jobdir::JobDir& job) {
  return absl::StrCat("elasticdl ", command, " --job_name=", job.job_name());
}

absl::Status UnknownJob(const std::string& state_dir, const std::string& name,
                        const KnownJobs& jobs) {
  std::string message = absl::StrCat("no job named ", name);
  std::vector<std::string> names;
  for (const auto* some : {&jobs.running, &jobs.ended}) {
    for (const jobdir::JobDir& job : *some) names.push_back(job.job_name());
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat(message, ": there are no jobs in ", state_dir));
  }
  const std::string nearest = Nearest(name, names);
  if (!nearest.empty()) {
    absl::StrAppend(&message, "; did you mean ", nearest, "?");
  }
  std::vector<std::string> known;
  if (!jobs.running.empty()) {
    known.push_back(absl::StrCat("running: ", JobNames(jobs.running)));
  }
  if (!jobs.ended.empty()) {
    known.push_back(absl::StrCat("ended: ", JobNames(jobs.ended)));
  }
  return absl::NotFoundError(absl::StrCat(message, " (",
                                          absl::StrJoin(known, "; "),
                                          "; elasticdl list shows all)"));
}

}  // namespace

absl::StatusOr<jobdir::JobDir> FindJob(const std::string& state_dir,
                                       const std::string& name,
                                       const std::string& command) {
  const std::vector<jobdir::JobDir> all = jobdir::ListJobs(state_dir);
  for (const jobdir::JobDir& job : all) {
    if (job.job_name() == name) return job;
  }
  const KnownJobs jobs = SortJobs(all);
  if (!name.empty()) return UnknownJob(state_dir, name, jobs);
  if (jobs.running.size() == 1) return jobs.running[0];
  if (!jobs.running.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        jobs.running.size(),
        " jobs are running on this machine: ", JobNames(jobs.running),
        "; say which: ", CommandFor(command, jobs.running[0])));
  }
  std::string message = "no job is running on this machine";
  if (ReadsEnded(command) && !jobs.ended.empty()) {
    absl::StrAppend(&message, "; of the one that ended last: ",
                    CommandFor(command, jobs.ended[0]),
                    " (elasticdl list shows all)");
  }
  return absl::NotFoundError(message);
}

}  // namespace elasticdl::cli
