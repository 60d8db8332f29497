#include "report.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/page/files.h"
#include "elasticdl/page/history.h"

namespace elasticdl::cli {
namespace {

constexpr char kReportGroup[] = "Options";

absl::Status Write(const std::string& path, const std::string& text) {
  if (path == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  // A file takes the place of what is there: a device or a pipe must stay.
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) &&
      !std::filesystem::is_regular_file(there)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output=", path, " is not a file; use - for a pipe"));
  }
  ELASTICDL_RETURN_IF_ERROR(WriteFileAtomic(path, text));
  std::printf("%s: %.0f kB, for any browser\n", path.c_str(),
              static_cast<double>(text.size()) / 1000);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadEventLog(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  page::History history;
  int64_t number = 0, bad = 0;
  std::string first_bad;
  size_t begin = 0;
  while (begin < text.size()) {
    ++number;
    const size_t end = text.find('\n', begin);
    // Somebody is writing it, or was killed while writing it.
    if (end == std::string::npos && number > 1) break;
    const std::string line = text.substr(begin, end - begin);
    begin = end == std::string::npos ? text.size() : end + 1;
    if (line.empty()) continue;
    const absl::Status added = history.Add(line);
    // A disk that was full leaves half a line; the others are good.
    if (!added.ok() && bad++ == 0) {
      first_bad = absl::StrCat("line ", number, ": ", added.message());
    }
  }
  if (history.cursor() == 0) {
    return absl::InvalidArgumentError(
        bad == 0 ? absl::StrCat(path, " has no events")
                 : absl::StrCat(path, ", ", first_bad));
  }
  if (bad > 0) {
    std::fprintf(stderr, "elasticdl report: %s: %s left out; the first is %s\n",
                 path.c_str(), Count(bad, "bad line").c_str(),
                 first_bad.c_str());
  }
  return page::ChangesToJson(history.Since(0), /*status=*/"");
}

int ReportCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set("elasticdl report",
                     "Saves the page of a job, running or ended, as one file "
                     "to keep or to send. It holds no token.");
  JobChoice choice;
  choice.AddTo(&set);
  std::string output = "report.html";
  std::string event_log;
  set.Add(
      "output", &output,
      flags::Info(kReportGroup, "The file to write; - is the standard output.")
          .Value("FILE"));
  set.Add("event_log", &event_log,
          flags::Info(kReportGroup,
                      "Make it from this event log (--event_log of the job) "
                      "alone.")
              .Value("FILE"));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  absl::StatusOr<std::string> data;
  if (!event_log.empty()) {
    data = ReadEventLog(event_log);
  } else {
    const auto job = find(choice);
    if (!job.ok()) return Fail(set, job.status());
    data = (*job)->Get("update");
  }
  if (!data.ok()) return Fail(set, data.status());
  const absl::Status written = Write(output, page::Report(*data));
  return written.ok() ? 0 : Fail(set, written);
}

}  // namespace elasticdl::cli
