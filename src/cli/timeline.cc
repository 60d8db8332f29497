#include "timeline.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "command.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/trace/timeline_summary.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {
namespace {

int RunSummary(const std::vector<std::string>& args) {
  flags::FlagSet set("elasticdl timeline summary",
                     "Says where the time of each worker went and for whom "
                     "the others waited, from a file of --timeline. The "
                     "columns are: the kind of work of the training thread; "
                     "its seconds; its share of the worker's whole time; its "
                     "milliseconds per step. Kinds in parentheses run on other "
                     "threads at the same time, so that all shares add up to "
                     "more than 100 %.");
  std::vector<std::string> files;
  set.AddPositional("FILE", &files, 1, "The file.", 1);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  std::ifstream in(files[0]);
  if (!in.is_open()) {
    return Fail(set,
                absl::NotFoundError(absl::StrCat("cannot open ", files[0])));
  }
  const auto summary = trace::SummarizeTimeline(in, files[0]);
  if (!summary.ok()) return Fail(set, summary.status());
  std::fputs(trace::DescribeTimeline(*summary).c_str(), stdout);
  return 0;
}

}  // namespace

int RunTimeline(const std::vector<std::string>& args) {
  static const auto* commands = new std::vector<Command>{
      {"summary", "Where the time went, and for whom others waited.",
       RunSummary},
  };
  return Dispatch("elasticdl timeline",
                  "Look into a timeline (--timeline of a job). Perfetto "
                  "(ui.perfetto.dev) and chrome://tracing show it as a "
                  "picture.",
                  *commands, args);
}

}  // namespace elasticdl::cli
