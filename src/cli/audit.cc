#include "audit.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"
#include "elasticdl/ledger_audit.h"
#include "elasticdl/server_audit.h"

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

// Read: an audit that is added to, from a stream.
template <typename Read>
absl::Status ReadFrom(const std::string& file, Read read) {
  std::ifstream in(file);
  if (!in.is_open()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", file));
  }
  if (const absl::Status done = read(in); !done.ok()) {
    return Annotate(done, file);
  }
  if (in.bad()) return absl::DataLossError(absl::StrCat("reading ", file));
  return absl::OkStatus();
}

bool IsNumber(absl::string_view text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 0;
}

// What servers wrote with --ps_audit=`path`: <path>.<i>, <path>.<j>-on-<i>.
absl::StatusOr<std::vector<std::string>> FilesOfServers(
    const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string dir = slash == path.npos ? "." : path.substr(0, slash + 1);
  const std::string prefix =
      absl::StrCat(slash == path.npos ? path : path.substr(slash + 1), ".");
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(dir));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, prefix)) continue;
    const std::vector<std::string> numbers =
        absl::StrSplit(name.substr(prefix.size()), "-on-");
    if (numbers.size() <= 2 && IsNumber(numbers.front()) &&
        IsNumber(numbers.back())) {
      files.push_back(JoinPath(dir, name));
    }
  }
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", path, ".0, nor one of another server"));
  }
  return files;
}

struct AuditFlags {
  std::vector<std::string> files;
  int64_t records = 0;
  int64_t epochs = 0;
  std::string ps_audit;
  bool partial = false;
};

// The servers of one job, against its own ledger. Returns the findings.
absl::StatusOr<int64_t> CheckServers(const std::string& file,
                                     const std::string& ps_audit,
                                     bool partial) {
  LedgerAudit ledger;
  ELASTICDL_RETURN_IF_ERROR(
      ReadFrom(file, [&](std::istream& in) { return ledger.Read(in); }));
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                             FilesOfServers(ps_audit));
  ServerAudit servers;
  for (const std::string& one : files) {
    ELASTICDL_RETURN_IF_ERROR(
        ReadFrom(one, [&](std::istream& in) { return servers.Read(one, in); }));
  }
  const ServerAuditResult result = servers.Check(ledger, partial);
  for (const std::string& place : result.places) {
    std::printf("servers: %s\n", place.c_str());
  }
  std::string line = absl::StrCat(
      "servers: ", result.files, " files, ", result.parts,
      " parts of the model; ",
      result.findings == 0 ? "each committed record is once in each bucket"
                           : absl::StrCat(result.findings, " findings"));
  if (result.not_committed > 0) {
    absl::StrAppend(&line, "; ", result.not_committed,
                    " records were applied and not committed");
  }
  std::printf("%s\n", line.c_str());
  return result.findings;
}

// All jobs; returns the findings.
absl::StatusOr<int64_t> CheckAllServers(const AuditFlags& flags) {
  const std::vector<std::string> audits = absl::StrSplit(flags.ps_audit, ',');
  if (audits.size() != flags.files.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ps_audit has ", audits.size(), " values for ", flags.files.size(),
        " files; a job without servers has an empty one"));
  }
  int64_t findings = 0;
  for (size_t i = 0; i < audits.size(); ++i) {
    if (audits[i].empty()) continue;
    ELASTICDL_ASSIGN_OR_RETURN(
        const int64_t found,
        CheckServers(flags.files[i], audits[i], flags.partial));
    findings += found;
  }
  return findings;
}

// All ledgers; returns what is wrong.
absl::StatusOr<int64_t> CheckLedgers(const AuditFlags& flags) {
  LedgerAudit audit;
  for (const std::string& file : flags.files) {
    ELASTICDL_RETURN_IF_ERROR(
        ReadFrom(file, [&](std::istream& in) { return audit.Read(in); }));
  }
  const AuditResult result = audit.Check();
  int64_t wrong = PrintEpochs(result, flags.records);
  const auto found = static_cast<int64_t>(result.epochs.size());
  if (found == 0 || (flags.epochs > 0 && found != flags.epochs)) {
    std::printf("%s\n",
                absl::StrCat(found, " epochs",
                             flags.epochs > 0
                                 ? absl::StrCat(" instead of ", flags.epochs)
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
  return wrong;
}

flags::FlagSet MakeFlags(AuditFlags* f) {
  flags::FlagSet set(
      "elasticdl audit",
      "Checks from a file of --ledger_audit that each record is in the model "
      "once. The exit code is 0 if so, 1 if not, 2 if a file cannot be read. "
      "Several files: those of a job and of the jobs that continued it from "
      "the checkpoint at its end, in that order.");
  set.AddPositional("FILE", &f->files, 1, "The file.");
  set.Add("records", &f->records,
          flags::Info(kAuditGroup,
                      "The records of one epoch: each epoch of the file must "
                      "have all of them; 0: as many as there are.")
              .Min(0));
  set.Add("epochs", &f->epochs,
          flags::Info(kAuditGroup,
                      "How many epochs there must be; 0: as many as there "
                      "are.")
              .Min(0));
  set.Add("ps_audit", &f->ps_audit,
          flags::Info(kAuditGroup,
                      "Checks the audits of parameter servers, too: each "
                      "committed record is in each bucket of the model once. "
                      "The value of --ps_audit of the job; the files of all "
                      "its servers are in one folder. Several: separated by "
                      "commas, one for each FILE.")
              .Value("FILE,..."));
  set.Add("partial", &f->partial,
          flags::Info(kAuditGroup,
                      "For --ps_audit: the job ended early, so servers may "
                      "have records that workers had not reported yet."));
  return set;
}

}  // namespace

int RunAudit(const std::vector<std::string>& args) {
  AuditFlags given;
  flags::FlagSet set = MakeFlags(&given);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto fail = [](const absl::Status& status) {
    std::fprintf(stderr, "elasticdl audit: %s\n",
                 std::string(status.message()).c_str());
    return 2;
  };
  const absl::StatusOr<int64_t> wrong = CheckLedgers(given);
  if (!wrong.ok()) return fail(wrong.status());
  absl::StatusOr<int64_t> findings = 0;
  if (!given.ps_audit.empty()) findings = CheckAllServers(given);
  if (!findings.ok()) return fail(findings.status());
  return *wrong + *findings == 0 ? 0 : 1;
}

}  // namespace elasticdl::cli
