#include "experiment/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/experiment/report.h"

namespace elasticdl::cli {

using experiment::RunResult;

absl::StatusOr<ExperimentStore> ExperimentStore::Open(
    const std::string& folder) {
  ExperimentStore store;
  // Jobs work in folders of their own: relative paths would not reach it.
  store.folder_ = folder;
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string lock = JoinPath(folder, "lock");
  store.lock_.Reset(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!store.lock_.valid()) return ErrnoToStatus(errno, lock);
  if (flock(store.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another experiment uses ", folder));
  }
  const std::string path = JoinPath(folder, "runs.jsonl");
  const std::string text = ReadFile(path).value_or("");
  auto results = experiment::ParseResults(text);
  if (!results.ok()) return Annotate(results.status(), path);
  store.results_ = *std::move(results);
  // A crash may have left part of a line; the next one must begin anew.
  const size_t end = text.rfind('\n');
  const size_t keep = end == std::string::npos ? 0 : end + 1;
  if (keep < text.size() &&
      truncate(path.c_str(), static_cast<off_t>(keep)) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", path));
  }
  ELASTICDL_ASSIGN_OR_RETURN(store.writer_, LineWriter::Open(path));
  return store;
}

absl::Status ExperimentStore::Add(const RunResult& result) {
  ELASTICDL_RETURN_IF_ERROR(writer_.Append(experiment::ResultLine(result)));
  results_[result.id] = result;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExperimentStore::RunFolder(
    const std::string& id) const {
  const std::string path = JoinPath(JoinPath(folder_, "runs"), id);
  ELASTICDL_RETURN_IF_ERROR(RemoveTree(path));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(path));
  return path;
}

absl::Status ExperimentStore::WriteReport(const experiment::Plan& plan) const {
  const experiment::Summary summary = experiment::Summarize(plan, results_);
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(folder_, "results.csv"),
                      experiment::ResultsCsv(plan, summary, results_)));
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(folder_, "results.json"),
                      experiment::ResultsJson(plan, summary, results_)));
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(folder_, "report.html"),
                      experiment::ReportHtml(plan, summary, results_)));
  const std::string charts = JoinPath(folder_, "charts");
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(charts));
  for (const experiment::NamedChart& chart :
       experiment::Charts(plan, summary)) {
    ELASTICDL_RETURN_IF_ERROR(
        WriteFileAtomic(JoinPath(charts, absl::StrCat(chart.name, ".svg")),
                        experiment::ChartFile(chart)));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::cli
