// Command-line flags of one command: declaration, parsing, help.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl::flags {

// What a flag has besides its name and target; all optional.
struct FlagInfo {
  std::string help;
  std::string group = "Options";
  // Other spellings, accepted with one hint on stderr ("--x is now --y").
  std::vector<std::string> old_names;
  // Other spellings that need no hint.
  std::vector<std::string> aliases;
  // The only values allowed; matched in any case, stored as spelt here.
  std::vector<std::string> choices;
  bool required = false;
  // Shown in the help as --flag=<value_name>.
  std::string value_name;
  // Grammar of a string value; its message says what is wrong with the value
  // and what is expected, the flag's name is added.
  std::function<absl::Status(const std::string&)> check;
  // A string that may be given without a value, as "".
  bool value_optional = false;
  // Bounds of a number, inclusive.
  std::optional<double> min;
  std::optional<double> max;
  // Accepted, but left out of help and completion (old flags).
  bool hidden = false;
  // Printed once on stderr when the flag is given ("--x has no effect: ...").
  std::string hint;
};

// Thread-compatible. Targets hold the default when they are added and the
// parsed value after Parse; they must outlive the set.
class FlagSet {
 public:
  // `command` as typed, e.g. "elasticdl data convert".
  FlagSet(std::string command, std::string summary);
  ~FlagSet();
  FlagSet(FlagSet&&) noexcept;
  FlagSet& operator=(FlagSet&&) noexcept;

  void Add(const std::string& name, std::string* target, FlagInfo info);
  void Add(const std::string& name, int64_t* target, FlagInfo info);
  void Add(const std::string& name, double* target, FlagInfo info);
  // Bare flag = not the default; values true|yes|t|y|1 and false|no|f|n|0 in
  // any case, anything else is an error. In a set with positional arguments a
  // value needs the '=': the next word is an argument.
  void Add(const std::string& name, bool* target, FlagInfo info);
  // Positional arguments; min_count of them must be given, at most max_count.
  // Several groups are filled in the order in which they were added.
  void AddPositional(const std::string& name, std::vector<std::string>* target,
                     size_t min_count, const std::string& help,
                     size_t max_count = SIZE_MAX);

  // `--flag value`, `--flag=value`, `--config FILE` (YAML of the same names;
  // the command line wins), `--` ends the flags. A repeated flag: the last one.
  // INVALID_ARGUMENT: one line that names the flag, what is wrong and the
  // nearest known name. CANCELLED: --help was given; print Help(), exit 0.
  // Call it once.
  absl::Status Parse(const std::vector<std::string>& args);

  // Parse, print hints and, on failure, the error line to stderr. The exit
  // code when the program should end now (0 help, 2 usage), or -1 to go on.
  int ParseOrExitCode(const std::vector<std::string>& args);

  // Prints the hints and, unless `status` is OK, what went wrong: help for
  // CANCELLED, else a line on stderr. Exit codes as ParseOrExitCode; for what
  // is checked after Parse.
  int Report(const absl::Status& status) const;

  // Sets a flag as if it had been given. For code that translates old flags.
  absl::Status Set(const std::string& name, const std::string& value);
  // Forgets that a flag was given; its target keeps its value.
  void Unset(const std::string& name);
  // One more line for hints().
  void AddHint(const std::string& hint);
  // What ParseOrExitCode prints to stderr besides errors, in order of use.
  std::vector<std::string> hints() const;

  std::string Help() const;
  // Was it given on the command line or in the config file?
  bool IsSet(const std::string& name) const;
  // `--name=value` for every flag that was given, under its present name.
  std::vector<std::string> ToArgs() const;
  // All values that differ from their defaults, and which flags were given, as
  // one line of JSON for another program of this version: Unpack gives a set
  // with the same flags the same state. Values are not checked again, so old
  // names are translated and rules are applied once, where the user is.
  std::string Pack() const;
  // INVALID_ARGUMENT for what Pack of such a set cannot have made.
  absl::Status Unpack(const std::string& packed);
  // Present names in the order of Add, hidden ones included.
  std::vector<std::string> names() const;
  const std::string& command() const;

  // What the help and the shell completion need to know of one flag.
  struct Description {
    std::string name;
    std::string type;           // string, int, float, bool
    std::string default_value;  // as it would be typed
    FlagInfo info;
  };
  std::vector<Description> Describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elasticdl::flags
