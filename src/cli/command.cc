#include "command.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "audit.h"
#include "cluster_exec.h"
#include "completion.h"
#include "data/data.h"
#include "doctor/checks.h"
#include "elasticdl/common/suggest.h"
#include "exec_beside.h"
#include "local/local_or_cluster.h"
#include "timeline.h"
#include "train_evaluate_predict.h"
#include "version.h"
#include "zoo/zoo.h"

namespace elasticdl::cli {
namespace {

const Command* Find(const std::vector<Command>& commands,
                    const std::string& name) {
  for (const Command& command : commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string Help(const std::string& program, const std::string& summary,
                 const std::vector<Command>& commands) {
  std::string text = absl::StrCat(summary, "\n\nUsage: ", program,
                                  " COMMAND [flags]\n\nCommands:\n");
  for (const Command& command : commands) {
    std::string line = absl::StrCat("  ", command.name);
    line.resize(14, ' ');
    absl::StrAppend(&text, line, command.summary, "\n");
  }
  absl::StrAppend(&text, "\n", program,
                  " COMMAND --help shows the flags of a command.\n");
  return text;
}

int RunRbac(const Args& args) {
  const absl::Status status = ExecCluster("rbac", args);
  std::fprintf(stderr, "elasticdl rbac: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

// Reading checkpoints needs Protocol Buffers, which would slow the start of
// every other command.
int RunCkpt(const Args& args) {
  const absl::Status status =
      ExecBeside("elasticdl-ckpt", "which reads checkpoints", args);
  std::fprintf(stderr, "elasticdl ckpt: %s\n",
               std::string(status.message()).c_str());
  return 2;
}

// Experiments have code of their own that no other command needs.
int RunExperiment(const Args& args) {
  const absl::Status status =
      ExecBeside("elasticdl-experiment", "which runs experiments", args);
  std::fprintf(stderr, "elasticdl experiment: %s\n",
               std::string(status.message()).c_str());
  return 2;
}

int UnknownCommand(const std::string& program,
                   const std::vector<Command>& commands,
                   const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands) names.push_back(command.name);
  const std::string nearest = Nearest(name, names);
  const std::string suggestion =
      nearest.empty() ? absl::StrCat("; see ", program, " --help")
                      : absl::StrCat(", did you mean ", nearest, "?");
  std::fprintf(stderr, "%s: unknown command '%s'%s\n", program.c_str(),
               name.c_str(), suggestion.c_str());
  return 2;
}

}  // namespace

int Dispatch(const std::string& program, const std::string& summary,
             const std::vector<Command>& commands, const Args& args) {
  if (args.empty()) {
    // As git does: help for people, and a failure for a script whose command
    // has got lost.
    std::fputs(Help(program, summary, commands).c_str(), stdout);
    return 1;
  }
  const std::string& name = args[0];
  const bool is_help = name == "help" || name == "--help" || name == "-h";
  if (is_help && args.size() == 1) {
    std::fputs(Help(program, summary, commands).c_str(), stdout);
    return 0;
  }
  const Command* command = Find(commands, is_help ? args[1] : name);
  if (command == nullptr) {
    return UnknownCommand(program, commands, is_help ? args[1] : name);
  }
  Args rest(args.begin() + (is_help ? 2 : 1), args.end());
  if (is_help) rest.push_back("--help");
  return command->run(rest);
}

const std::vector<Command>& Commands() {
  static const auto* commands = new std::vector<Command>{
      {"train", "Train a model, on this machine or on a cluster.", RunTrain},
      {"evaluate", "Evaluate a checkpoint.", RunEvaluate},
      {"predict", "Predict with a checkpoint.", RunPredict},
      {"data", "Get, convert, make and inspect data sets.", RunData},
      {"ckpt", "Show or compare checkpoints.", RunCkpt},
      {"zoo", "Make images of model zoos.", RunZoo},
      {"list", "List the jobs on this machine or on a cluster.", RunList},
      {"top", "Show what a job is doing.", RunTop},
      {"open", "Open the page of a job in a browser.", RunOpen},
      {"report", "Save the page of a job as one file.", RunReport},
      {"audit", "Check that each record is in the model once.", RunAudit},
      {"timeline", "Show where the time of a job went.", RunTimeline},
      {"scale", "Change the number of a job's workers or servers.", RunScale},
      {"kill", "Kill workers of a job, to see it recover.", RunKill},
      {"logs", "Show the logs of a job's pods.", RunLogs},
      {"stop", "Stop a job.", RunStop},
      {"experiment", "Run jobs by a plan: scaling, kills, comparisons.",
       RunExperiment},
      {"rbac", "Grant a cluster's jobs the rights that they need.", RunRbac},
      {"doctor", "Check this machine for missing requirements.", RunDoctor},
      {"version", "Show the versions of elasticdl and its libraries.",
       RunVersion},
      {"completion", "Print a completion script for a shell.", RunCompletion},
  };
  return *commands;
}

int Run(const Args& args) {
  if (args.size() == 1 && args[0] == "--version") return RunVersion({});
  return Dispatch("elasticdl",
                  "ElasticDL trains deep-learning models on workers that may "
                  "come and go.",
                  Commands(), args);
}

}  // namespace elasticdl::cli
