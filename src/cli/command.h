// Tables of commands, and dispatch.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

using Args = std::vector<std::string>;

struct Command {
  std::string name;
  std::string summary;
  // Runs it with the arguments after its name and returns the exit code.
  int (*run)(const Args& args);
};

// Runs the command that args[0] names. `program` as typed so far, e.g.
// "elasticdl zoo". --help and `help` (also `help COMMAND`) print and return 0,
// no command prints the help and returns 1, an unknown one returns 2.
int Dispatch(const std::string& program, const std::string& summary,
             const std::vector<Command>& commands, const Args& args);

// The commands of `elasticdl`.
const std::vector<Command>& Commands();
// The commands of `elasticdl zoo`.
const std::vector<Command>& ZooCommands();

// All of `elasticdl`: arguments without the program's name to exit code.
int Run(const Args& args);

}  // namespace elasticdl::cli
