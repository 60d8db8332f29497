// Tables of commands and how one is chosen.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

using Args = std::vector<std::string>;

struct Command {
  std::string name;
  std::string summary;
  // Runs it with the arguments after its name; the exit code.
  int (*run)(const Args& args);
};

// Runs the command that args[0] names. `program` as typed so far, e.g.
// "elasticdl zoo". --help and `help` (also `help COMMAND`) print and give 0,
// no command prints the help and gives 1, an unknown one gives 2.
int Dispatch(const std::string& program, const std::string& summary,
             const std::vector<Command>& commands, const Args& args);

// The commands of `elasticdl`.
const std::vector<Command>& Commands();
// The commands of `elasticdl zoo`.
const std::vector<Command>& ZooCommands();

// All of `elasticdl`: arguments without the program's name to exit code.
int Run(const Args& args);

}  // namespace elasticdl::cli
