// FlagSet by hand and not with CLI11: bare booleans that turn their default
// around, old names with hints, suggestions and the YAML file need hooks that
// would be longer than this parser.
#include "elasticdl/flags/flag_set.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config_file.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/suggest.h"
#include "flag_help.h"
#include "flag_value.h"

namespace elasticdl::flags {
namespace {

struct Flag {
  std::string name;
  FlagTarget target;
  FlagInfo info;
  std::string default_value;
  bool is_set = false;
  bool is_bool() const { return std::holds_alternative<bool*>(target); }
};

struct Positional {
  PositionalDescription description;
  std::vector<std::string>* target;
};

// How a name leads to its flag.
struct Spelling {
  size_t flag;
  bool old;
};

// One `--name[=value]` as found, before any value is stored.
struct Given {
  size_t flag;
  std::string value;
  // Bare boolean: the value is "not the default".
  bool bare = false;
};

// A path may hold bytes that are no UTF-8, which JSON cannot.
void PackValue(const std::string& value, nlohmann::json* packed) {
  *packed = absl::CEscape(value);
}
void UnpackValue(const nlohmann::json& packed, std::string* value) {
  // Escaped by PackValue, or else it stays empty.
  absl::CUnescape(packed.get_ref<const std::string&>(), value);
}
template <typename T>
void PackValue(const T& value, nlohmann::json* packed) {
  *packed = value;
}
template <typename T>
void UnpackValue(const nlohmann::json& packed, T* value) {
  packed.get_to(*value);
}

}  // namespace

struct FlagSet::Impl {
  std::string command;
  std::string summary;
  std::vector<Flag> flags;
  std::vector<Positional> positionals;
  std::map<std::string, Spelling> spellings;
  std::vector<std::string> hints;
  std::string config_path;

  void Add(const std::string& name, FlagTarget target, FlagInfo info);
  void AddSpelling(const std::string& name, bool old);
  absl::Status Unknown(const std::string& name, absl::string_view shown) const;
  absl::StatusOr<size_t> Find(const std::string& name, absl::string_view shown);
  void Hint(const std::string& text);
  // Splits args into flags and the rest.
  absl::Status Scan(const std::vector<std::string>& args,
                    std::vector<Given>* given, std::vector<std::string>* rest);
  absl::Status ScanFlag(const std::vector<std::string>& args, size_t* i,
                        std::vector<Given>* given);
  absl::Status Store(Flag* flag, const std::string& value);
  absl::Status ApplyConfig(const std::vector<Given>& given);
  absl::Status ApplyGiven(const std::vector<Given>& given);
  absl::Status ApplyPositionals(const std::vector<std::string>& rest);
  absl::Status CheckRequired() const;
};

void FlagSet::Impl::AddSpelling(const std::string& name, bool old) {
  const bool added =
      spellings.emplace(name, Spelling{flags.size() - 1, old}).second;
  ELASTICDL_CHECK(added);  // A name is declared once.
}

void FlagSet::Impl::Add(const std::string& name, FlagTarget target,
                        FlagInfo info) {
  Flag flag{name, target, std::move(info), FormatValue(target)};
  flags.push_back(std::move(flag));
  AddSpelling(name, false);
  const FlagInfo& kept = flags.back().info;
  for (const std::string& alias : kept.aliases) AddSpelling(alias, false);
  for (const std::string& old : kept.old_names) AddSpelling(old, true);
}

absl::Status FlagSet::Impl::Unknown(const std::string& name,
                                    absl::string_view shown) const {
  std::vector<std::string> names = {"help", "config"};
  // Present names first: of two equally near ones the first is suggested.
  for (const Flag& flag : flags) {
    if (!flag.info.hidden) names.push_back(flag.name);
  }
  for (const auto& [spelling, ignored] : spellings) names.push_back(spelling);
  const std::string nearest = Nearest(name, names);
  std::string message = absl::StrCat("unknown flag ", shown);
  if (!nearest.empty()) {
    const auto it = spellings.find(nearest);
    const std::string present =
        it == spellings.end() ? nearest : flags[it->second.flag].name;
    absl::StrAppend(&message, ", did you mean --", present);
    if (present != nearest) {
      absl::StrAppend(&message, " (the old --", nearest, ")");
    }
    absl::StrAppend(&message, "?");
  }
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<size_t> FlagSet::Impl::Find(const std::string& name,
                                           absl::string_view shown) {
  const auto it = spellings.find(name);
  if (it == spellings.end()) return Unknown(name, shown);
  const Flag& flag = flags[it->second.flag];
  if (it->second.old) {
    Hint(absl::StrCat("--", name, " is now --", flag.name));
  }
  if (!flag.info.hint.empty()) Hint(flag.info.hint);
  return it->second.flag;
}

void FlagSet::Impl::Hint(const std::string& text) {
  for (const std::string& hint : hints) {
    if (hint == text) return;
  }
  hints.push_back(text);
}

absl::Status FlagSet::Impl::Scan(const std::vector<std::string>& args,
                                 std::vector<Given>* given,
                                 std::vector<std::string>* rest) {
  bool flags_ended = false;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    // -1 is a value.
    if (flags_ended || arg.size() < 2 || arg[0] != '-' ||
        absl::ascii_isdigit(static_cast<unsigned char>(arg[1]))) {
      rest->push_back(arg);
    } else if (arg == "--") {
      flags_ended = true;
    } else if (arg == "--help" || arg == "-h" || arg == "-help") {
      return absl::CancelledError("--help");
    } else {
      ELASTICDL_RETURN_IF_ERROR(ScanFlag(args, &i, given));
    }
  }
  return absl::OkStatus();
}

// One dash is as good as two: the flags of the old Go program had one.
absl::Status FlagSet::Impl::ScanFlag(const std::vector<std::string>& args,
                                     size_t* i, std::vector<Given>* given) {
  const std::string& arg = args[*i];
  const size_t equals = arg.find('=');
  const std::string shown = arg.substr(0, equals);
  const std::string name = shown.substr(absl::StartsWith(arg, "--") ? 2 : 1);
  const bool is_config = name == "config" && spellings.count(name) == 0;
  Given found{0, "", false};
  if (!is_config) {
    ELASTICDL_ASSIGN_OR_RETURN(found.flag, Find(name, shown));
  }
  const bool has_next =
      *i + 1 < args.size() && !absl::StartsWith(args[*i + 1], "--");
  if (equals != std::string::npos) {
    found.value = arg.substr(equals + 1);
  } else if (!is_config && flags[found.flag].info.value_optional) {
    // Never the next word: it might be anything.
    found.value.clear();
  } else if (!is_config && flags[found.flag].is_bool()) {
    // Where words may follow that are no values, none is taken: in
    // `logs --follow 0` the 0 is a pod. There --flag=value is the way.
    if (has_next && !absl::StartsWith(args[*i + 1], "-") &&
        positionals.empty()) {
      found.value = args[++*i];
    } else {
      found.bare = true;
    }
  } else if (has_next) {
    found.value = args[++*i];
  } else {
    return absl::InvalidArgumentError(absl::StrCat(shown, " needs a value"));
  }
  if (is_config) {
    config_path = found.value;
  } else {
    given->push_back(std::move(found));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Impl::Store(Flag* flag, const std::string& value) {
  ELASTICDL_RETURN_IF_ERROR(
      Annotate(ParseValue(value, flag->info, flag->target),
               absl::StrCat("--", flag->name)));
  flag->is_set = true;
  return absl::OkStatus();
}

absl::Status FlagSet::Impl::ApplyConfig(const std::vector<Given>& given) {
  if (config_path.empty()) return absl::OkStatus();
  std::vector<bool> overridden(flags.size(), false);
  for (const Given& one : given) overridden[one.flag] = true;
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries,
                             ReadConfigFile(config_path));
  for (const ConfigEntry& entry : entries) {
    absl::StatusOr<size_t> flag = Find(entry.name, entry.name);
    if (!flag.ok()) return Annotate(flag.status(), entry.where);
    // What the command line overrides may be wrong.
    if (overridden[*flag]) continue;
    ELASTICDL_RETURN_IF_ERROR(
        Annotate(Store(&flags[*flag], entry.value), entry.where));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Impl::ApplyGiven(const std::vector<Given>& given) {
  for (const Given& one : given) {
    Flag& flag = flags[one.flag];
    std::string value = one.value;
    if (one.bare) value = flag.default_value == "true" ? "false" : "true";
    ELASTICDL_RETURN_IF_ERROR(Store(&flag, value));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Impl::ApplyPositionals(
    const std::vector<std::string>& rest) {
  size_t next = 0;
  for (Positional& positional : positionals) {
    const PositionalDescription& about = positional.description;
    size_t taken = 0;
    while (next < rest.size() && taken < about.max_count) {
      positional.target->push_back(rest[next++]);
      ++taken;
    }
    if (taken < about.min_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("missing argument ", about.name, ": ", about.help));
    }
  }
  if (next < rest.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", rest[next], "'",
                     positionals.empty() ? "; flags begin with --" : ""));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::Impl::CheckRequired() const {
  std::vector<std::string> missing;
  for (const Flag& flag : flags) {
    if (flag.info.required && !flag.is_set) {
      missing.push_back(absl::StrCat("--", flag.name));
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("missing required flag", missing.size() > 1 ? "s " : " ",
                   absl::StrJoin(missing, ", ")));
}

FlagSet::FlagSet(std::string command, std::string summary)
    : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->summary = std::move(summary);
}
FlagSet::~FlagSet() = default;
FlagSet::FlagSet(FlagSet&&) noexcept = default;
FlagSet& FlagSet::operator=(FlagSet&&) noexcept = default;

void FlagSet::Add(const std::string& name, std::string* target, FlagInfo info) {
  impl_->Add(name, target, std::move(info));
}
void FlagSet::Add(const std::string& name, int64_t* target, FlagInfo info) {
  impl_->Add(name, target, std::move(info));
}
void FlagSet::Add(const std::string& name, double* target, FlagInfo info) {
  impl_->Add(name, target, std::move(info));
}
void FlagSet::Add(const std::string& name, bool* target, FlagInfo info) {
  impl_->Add(name, target, std::move(info));
}

void FlagSet::AddPositional(const std::string& name,
                            std::vector<std::string>* target, size_t min_count,
                            const std::string& help, size_t max_count) {
  impl_->positionals.push_back({{name, help, min_count, max_count}, target});
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args) {
  std::vector<Given> given;
  std::vector<std::string> rest;
  ELASTICDL_RETURN_IF_ERROR(impl_->Scan(args, &given, &rest));
  // Before the command line, which wins.
  ELASTICDL_RETURN_IF_ERROR(impl_->ApplyConfig(given));
  ELASTICDL_RETURN_IF_ERROR(impl_->ApplyGiven(given));
  ELASTICDL_RETURN_IF_ERROR(impl_->ApplyPositionals(rest));
  return impl_->CheckRequired();
}

int FlagSet::ParseOrExitCode(const std::vector<std::string>& args) {
  return Report(Parse(args));
}

int FlagSet::Report(const absl::Status& status) const {
  if (absl::IsCancelled(status)) {
    std::fputs(Help().c_str(), stdout);
    return 0;
  }
  for (const std::string& hint : impl_->hints) {
    std::fprintf(stderr, "%s: hint: %s\n", impl_->command.c_str(),
                 hint.c_str());
  }
  if (status.ok()) return -1;
  std::fprintf(stderr, "%s: %s\n", impl_->command.c_str(),
               std::string(status.message()).c_str());
  return 2;
}

absl::Status FlagSet::Set(const std::string& name, const std::string& value) {
  const auto it = impl_->spellings.find(name);
  if (it == impl_->spellings.end()) {
    return impl_->Unknown(name, absl::StrCat("--", name));
  }
  return impl_->Store(&impl_->flags[it->second.flag], value);
}

void FlagSet::Unset(const std::string& name) {
  const auto it = impl_->spellings.find(name);
  if (it != impl_->spellings.end()) {
    impl_->flags[it->second.flag].is_set = false;
  }
}

void FlagSet::AddHint(const std::string& hint) { impl_->Hint(hint); }

std::vector<std::string> FlagSet::hints() const { return impl_->hints; }

std::string FlagSet::Help() const {
  std::vector<PositionalDescription> positionals;
  for (const Positional& positional : impl_->positionals) {
    positionals.push_back(positional.description);
  }
  return FormatHelp(impl_->command, impl_->summary, positionals, Describe());
}

bool FlagSet::IsSet(const std::string& name) const {
  const auto it = impl_->spellings.find(name);
  return it != impl_->spellings.end() && impl_->flags[it->second.flag].is_set;
}

std::vector<std::string> FlagSet::ToArgs() const {
  std::vector<std::string> args;
  for (const Flag& flag : impl_->flags) {
    if (!flag.is_set) continue;
    args.push_back(
        absl::StrCat("--", flag.name, "=", FormatValue(flag.target)));
  }
  return args;
}

std::string FlagSet::Pack() const {
  nlohmann::json values = nlohmann::json::object();
  nlohmann::json given = nlohmann::json::array();
  for (const Flag& flag : impl_->flags) {
    if (flag.is_set) given.push_back(flag.name);
    if (!flag.is_set && FormatValue(flag.target) == flag.default_value) {
      continue;
    }
    std::visit(
        [&](const auto* target) { PackValue(*target, &values[flag.name]); },
        flag.target);
  }
  return JsonText(nlohmann::json({{"values", values}, {"given", given}}));
}

absl::Status FlagSet::Unpack(const std::string& packed) {
  try {
    const nlohmann::json all = ParseJson(packed);
    for (const auto& [name, value] : all.at("values").items()) {
      const auto it = impl_->spellings.find(name);
      if (it == impl_->spellings.end()) {
        return impl_->Unknown(name, absl::StrCat("--", name));
      }
      std::visit(
          [&, &from = value](auto* target) { UnpackValue(from, target); },
          impl_->flags[it->second.flag].target);
    }
    for (const auto& name : all.at("given")) {
      const auto it = impl_->spellings.find(name.get<std::string>());
      if (it != impl_->spellings.end()) {
        impl_->flags[it->second.flag].is_set = true;
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not the options that another program packed: ", error.what()));
  }
  return absl::OkStatus();
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : impl_->flags) names.push_back(flag.name);
  return names;
}

const std::string& FlagSet::command() const { return impl_->command; }

std::vector<FlagSet::Description> FlagSet::Describe() const {
  std::vector<Description> all;
  for (const Flag& flag : impl_->flags) {
    all.push_back(
        {flag.name, TypeName(flag.target), flag.default_value, flag.info});
  }
  return all;
}

}  // namespace elasticdl::flags
