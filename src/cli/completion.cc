#include "completion.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "command.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/job_flags.h"
#include "zoo/zoo.h"

namespace elasticdl::cli {
namespace {

struct CommandFlags {
  std::string command;
  std::vector<flags::FlagSet::Description> flags;
};

CommandFlags JobCommandFlags(const std::string& name,
                             flags::JobCommand command) {
  flags::JobFlags flags;
  flags::FlagSet set(name, "");
  flags::AddJobFlags(command, &flags, &set);
  return {name, set.Describe()};
}

// The commands whose flags are known here. For the others the script reads
// their
// --help.
std::vector<CommandFlags> KnownFlags() {
  std::vector<CommandFlags> all = {
      JobCommandFlags("train", flags::JobCommand::kTrain),
      JobCommandFlags("evaluate", flags::JobCommand::kEvaluate),
      JobCommandFlags("predict", flags::JobCommand::kPredict),
  };
  ZooInitFlags init;
  flags::FlagSet init_set("zoo init", "");
  AddZooInitFlags(&init, &init_set);
  all.push_back({"zoo init", init_set.Describe()});
  ZooBuildFlags build;
  flags::FlagSet build_set("zoo build", "");
  AddZooBuildFlags(&build, &build_set);
  all.push_back({"zoo build", build_set.Describe()});
  return all;
}

std::string Names(const std::vector<Command>& commands) {
  return absl::StrJoin(commands, " ",
                       [](std::string* out, const Command& command) {
                         out->append(command.name);
                       });
}

std::string FlagWords(const std::vector<flags::FlagSet::Description>& flags) {
  std::vector<std::string> words = {"--help", "--config="};
  for (const flags::FlagSet::Description& flag : flags) {
    if (flag.info.hidden) continue;
    words.push_back(
        absl::StrCat("--", flag.name, flag.type == "bool" ? "" : "="));
  }
  return absl::StrJoin(words, " ");
}

// `    --flag) values="a b" ;;` for each flag with choices, once per name.
std::string ChoiceCases(const std::vector<CommandFlags>& all) {
  std::string cases;
  std::vector<std::string> seen;
  for (const CommandFlags& one : all) {
    for (const flags::FlagSet::Description& flag : one.flags) {
      if (flag.info.hidden || flag.info.choices.empty()) continue;
      const std::string line =
          absl::StrCat("    --", flag.name, ") values=\"",
                       absl::StrJoin(flag.info.choices, " "), "\" ;;\n");
      bool known = false;
      for (const std::string& other : seen) known = known || other == line;
      if (!known) cases += line;
      seen.push_back(line);
    }
  }
  return cases;
}

constexpr char kBash[] = R"(# bash completion for elasticdl
# source <(elasticdl completion bash)

_elasticdl_values() {
  local flag=$1 values=""
  case "$flag" in
@CHOICES@  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$2"))
  else
    COMPREPLY=($(compgen -f -- "$2"))
    compopt -o filenames 2>/dev/null
  fi
}

_elasticdl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words=""
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "@COMMANDS@ help" -- "$cur"))
    return
  fi
  # bash makes words of their own of the = in --flag=value.
  if [[ $cur == "=" ]]; then
    _elasticdl_values "$prev" ""
    return
  elif [[ $prev == "=" ]]; then
    _elasticdl_values "${COMP_WORDS[COMP_CWORD-2]}" "$cur"
    return
  fi
  if [[ $command == help ]] && ((COMP_CWORD == 2)); then
    COMPREPLY=($(compgen -W "@COMMANDS@" -- "$cur"))
    return
  elif [[ $command == zoo ]]; then
    if ((COMP_CWORD == 2)); then
      COMPREPLY=($(compgen -W "@ZOO@ help" -- "$cur"))
      return
    fi
    command="zoo ${COMP_WORDS[2]}"
  elif [[ $command == completion ]]; then
    COMPREPLY=($(compgen -W "bash" -- "$cur"))
    return
  fi
  case "$command" in
@FLAGS@    *)
      local -a asked=("${COMP_WORDS[@]:1:1}")
      if [[ $command == data || $command == ckpt || $command == timeline ]]; then
        if ((COMP_CWORD == 2)); then
          words=$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null |
            sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')
          COMPREPLY=($(compgen -W "$words" -- "$cur"))
          return
        fi
        asked+=("${COMP_WORDS[2]}")
      fi
      words=$("${COMP_WORDS[0]}" "${asked[@]}" --help 2>/dev/null |
        sed -n 's/^  \(--[a-z_]*=\{0,1\}\).*/\1/p')
      ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
      compopt -o nospace 2>/dev/null
    fi
  elif [[ $prev == --* ]]; then
    _elasticdl_values "$prev" "$cur"
  else
    COMPREPLY=($(compgen -f -- "$cur"))
    compopt -o filenames 2>/dev/null
  fi
}

complete -F _elasticdl elasticdl
)";

}  // namespace

std::string BashCompletion() {
  const std::vector<CommandFlags> all = KnownFlags();
  std::string flags;
  for (const CommandFlags& one : all) {
    absl::StrAppend(&flags, "    \"", one.command, "\") words=\"",
                    FlagWords(one.flags), "\" ;;\n");
  }
  return absl::StrReplaceAll(kBash, {{"@CHOICES@", ChoiceCases(all)},
                                     {"@COMMANDS@", Names(Commands())},
                                     {"@ZOO@", Names(ZooCommands())},
                                     {"@FLAGS@", flags}});
}

int RunCompletion(const std::vector<std::string>& args) {
  std::vector<std::string> shell;
  flags::FlagSet set(
      "elasticdl completion",
      "Prints a completion script: source <(elasticdl completion "
      "bash)");
  set.AddPositional("SHELL", &shell, 1, "bash", 1);
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  if (shell[0] != "bash") {
    return set.Report(absl::InvalidArgumentError(
        absl::StrCat("SHELL: '", shell[0], "' is not supported; bash is")));
  }
  std::fputs(BashCompletion().c_str(), stdout);
  return 0;
}

}  // namespace elasticdl::cli
