#include "slurm/submit.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {
namespace {

// How long before the time limit a job saves its model.
constexpr int kNoticeSeconds = 60;

std::string Quoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

bool HasWord(const std::string& text, absl::string_view word) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  return std::find(words.begin(), words.end(), word) != words.end();
}

absl::StatusOr<std::string> Submit(const flags::JobFlags& flags,
                                   const flags::FlagSet& set,
                                   const std::string& command) {
  const jobdir::JobDir dir(
      flags.state_dir.empty() ? flags::DefaultStateDir() : flags.state_dir,
      flags.job_name);
  ELASTICDL_RETURN_IF_ERROR(jobdir::ValidateJobName(flags.job_name));
  if (dir.IsRunning()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "a job named ", flags.job_name, " is running (", dir.path(), ")"));
  }
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(dir.path(), 0700));
  BatchJob job;
  job.job_name = flags.job_name;
  job.output = JoinPath(dir.path(), "slurm-%j.out");
  job.tasks = flags.num_workers + (flags.HasServers() ? flags.num_ps_pods : 0);
  job.options = flags.slurm;
  job.argv = {flags::ProgramBeside("elasticdl"), command};
  for (const std::string& arg : set.ToArgs()) {
    if (!absl::StartsWith(arg, "--slurm=")) job.argv.push_back(arg);
  }
  process::RunOptions run;
  run.argv = {"sbatch", "--parsable"};
  run.input = BatchScript(job);
  run.timeout = absl::Minutes(2);
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result,
                             process::Run(run));
  if (result.code != 0) {
    return absl::UnavailableError(
        absl::StrCat("sbatch: ", result.HowItEnded(), ": ",
                     process::LastWords(result.error, 1000)));
  }
  std::string id = result.output.substr(0, result.output.find(';'));
  absl::StripAsciiWhitespace(&id);
  std::printf(
      "job %s is job %s of Slurm\n"
      "  output:   %s\n"
      "  logs:     %s\n"
      "  look:     squeue --job=%s --steps\n"
      "  suspend:  scancel --signal=TERM --batch %s\n"
      "  end:      scancel %s\n",
      flags.job_name.c_str(), id.c_str(),
      absl::StrReplaceAll(job.output, {{"%j", id}}).c_str(),
      dir.LogsDir().c_str(), id.c_str(), id.c_str(), id.c_str());
  return id;
}

}  // namespace

std::string BatchScript(const BatchJob& job) {
  std::string script = "#!/bin/sh\n";
  for (const std::string& option :
       {absl::StrCat("--job-name=", job.job_name),
        absl::StrCat("--ntasks=", job.tasks),
        absl::StrCat("--output=", Quoted(job.output)),
        std::string("--open-mode=append"),
        absl::StrCat("--signal=B:TERM@", kNoticeSeconds)}) {
    absl::StrAppend(&script, "#SBATCH ", option, "\n");
  }
  // Last: what the user says counts.
  if (!job.options.empty()) {
    absl::StrAppend(&script, "#SBATCH ", job.options, "\n");
  }
  // A shell does not pass signals on. One may come before the program runs.
  absl::StrAppend(&script,
                  "pid=\n"
                  "early=\n"
                  "trap 'if [ -n \"$pid\" ]; then kill -TERM $pid; "
                  "else early=1; fi' TERM\n");
  for (size_t i = 0; i < job.argv.size(); ++i) {
    absl::StrAppend(&script, i == 0 ? "" : " ", Quoted(job.argv[i]));
  }
  absl::StrAppend(&script,
                  " &\n"
                  "pid=$!\n"
                  "[ -z \"$early\" ] || kill -TERM $pid\n"
                  "wait $pid\n"
                  "code=$?\n"
                  "while kill -0 $pid 2> /dev/null; do\n"
                  "  wait $pid\n"
                  "  code=$?\n"
                  "done\n");
  if (HasWord(job.options, "--requeue")) {
    absl::StrAppend(&script,
                    "# Suspended, and not cancelled: go on later.\n"
                    "state=$(squeue --noheader --job=$SLURM_JOB_ID "
                    "--format=%T)\n"
                    "if [ $code -eq 5 ] && [ \"$state\" = RUNNING ]; then\n"
                    "  scontrol requeue $SLURM_JOB_ID\n"
                    "fi\n");
  }
  absl::StrAppend(&script, "exit $code\n");
  return script;
}

int SubmitToSlurm(const std::string& command, const flags::JobFlags& flags,
                  const flags::FlagSet& set) {
  const auto id = Submit(flags, set, command);
  if (id.ok()) return 0;
  std::fprintf(stderr, "elasticdl %s: %s\n", command.c_str(),
               std::string(id.status().message()).c_str());
  return 1;
}

}  // namespace elasticdl::cli
