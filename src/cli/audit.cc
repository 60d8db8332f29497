#include "audit.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/ledger_audit.h"

namespace elasticdl::cli {
namespace {

constexpr char kAuditGroup[] = "Options";

// One line for each epoch; how many records are missing or there twice.
int64_t PrintEpochs(const AuditResult& result, int64_t expected) {
  int64_t wrong = 0;
  for (const auto& [number, epoch] : result.epochs) {
    std::string line = absl::StrCat(
        "epoch ", number + 1, ": ", epoch.records, " records, ",
        epoch.twice == 0 ? "each once"
                         : absl::StrCat(epoch.twice, " of them twice"));
    wrong += epoch.twice;
    if (expected > 0 && epoch.records != expected) {
      const int64_t missing = expected - epoch.records;
      absl::StrAppend(&line, missing > 0
                                 ? absl::StrCat(", ", missing, " are missing")
                                 : absl::StrCat(", ", -missing, " too many"));
      wrong += missing > 0 ? missing : -missing;
    }
    std::printf("%s\n", line.c_str());
  }
  return wrong;
}

absl::Status ReadAll(const std::vector<std::string>& files,
                     LedgerAudit& audit) {
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in.is_open()) {
      return absl::NotFoundError(absl::StrCat("cannot open ", file));
    }
    if (const absl::Status read = audit.Read(in); !read.ok()) {
      return Annotate(read, file);
    }
    if (in.bad()) return absl::DataLossError(absl::StrCat("reading ", file));
  }
  return absl::OkStatus();
}

}  // namespace

int RunAudit(const std::vector<std::string>& args) {
  flags::FlagSet set(
      "elasticdl audit",
      "Checks from a file of --ledger_audit that each record is in the model "
      "once. The exit code is 0 if so, 1 if not, 2 if a file cannot be read. "
      "Several files: those of a job and of the jobs that continued it from "
      "the checkpoint at its end, in that order.");
  std::vector<std::string> files;
  int64_t records = 0;
  set.AddPositional("FILE", &files, 1, "The file.");
  set.Add("records", &records,
          flags::Info(kAuditGroup,
                      "The records of one epoch: each epoch of the file must "
                      "have all of them; 0: as many as there are.")
              .Min(0));
  int64_t epochs = 0;
  set.Add("epochs", &epochs,
          flags::Info(kAuditGroup,
                      "How many epochs there must be; 0: as many as there "
                      "are.")
              .Min(0));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  LedgerAudit audit;
  if (const absl::Status read = ReadAll(files, audit); !read.ok()) {
    std::fprintf(stderr, "elasticdl audit: %s\n",
                 std::string(read.message()).c_str());
    return 2;
  }
  const AuditResult result = audit.Check();
  int64_t wrong = PrintEpochs(result, records);
  const auto found = static_cast<int64_t>(result.epochs.size());
  if (found == 0 || (epochs > 0 && found != epochs)) {
    std::printf("%s\n",
                absl::StrCat(found, " epochs",
                             epochs > 0 ? absl::StrCat(" instead of ", epochs)
                                        : ": the file is empty")
                    .c_str());
    ++wrong;
  }
  for (const std::string& place : result.places) {
    std::printf("twice: %s\n", place.c_str());
  }
  std::printf(
      "%s\n",
      absl::StrCat(result.records, " records committed, ",
                   result.twice == 0 ? "none" : absl::StrCat(result.twice),
                   " twice")
          .c_str());
  return wrong == 0 ? 0 : 1;
}

}  // namespace elasticdl::cli
