// Command-line flags of one command: declaration, parsing, help.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::cli {

// What a flag has besides its name and target; all optional.
struct FlagInfo {
  std::string help;
  std::string group = "Options";
  // Other spellings, accepted with one hint on stderr ("--x is now --y").
  std::vector<std::string> old_names;
  // Other spellings that need no hint.
  std::vector<std::string> aliases;
  std::vector<std::string> choices;
  bool required = false;
  // Shown in the help as --flag=<value_name>.
  std::string value_name;
};

// Thread-compatible. Targets hold the default when they are added and the
// parsed value after Parse; they must outlive the set.
class FlagSet {
 public:
  // `command` as typed, e.g. "elasticdl data convert".
  FlagSet(std::string command, std::string summary);
  ~FlagSet();

  void Add(const std::string& name, std::string* target, FlagInfo info);
  void Add(const std::string& name, int64_t* target, FlagInfo info);
  void Add(const std::string& name, double* target, FlagInfo info);
  // Bare flag = not the default; values true|yes|t|y|1 and false|no|f|n|0 in
  // any case, anything else is an error.
  void Add(const std::string& name, bool* target, FlagInfo info);
  // Positional arguments; min_count of them must be given.
  void AddPositional(const std::string& name, std::vector<std::string>* target,
                     size_t min_count, const std::string& help);

  // `--flag value`, `--flag=value`, `--config FILE` (YAML of the same names).
  // INVALID_ARGUMENT: one line that names the flag, what is wrong and the
  // nearest known name. CANCELLED: --help was given; print Help(), exit 0.
  absl::Status Parse(const std::vector<std::string>& args);

  // Parse, and on failure print the line to stderr. The exit code when the
  // program should end now (0 help, 2 usage), or -1 to go on.
  int ParseOrExitCode(const std::vector<std::string>& args);

  std::string Help() const;
  // Was it given on the command line or in the config file?
  bool IsSet(const std::string& name) const;
  // `--name=value` for every flag that was given, under its present name.
  std::vector<std::string> ToArgs() const;
  std::vector<std::string> names() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elasticdl::cli
