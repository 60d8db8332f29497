#include "flag_help.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace elasticdl::flags {
namespace {

constexpr size_t kColumns = 90;
// Where the explanations begin; longer flags push theirs to the next line.
constexpr size_t kIndent = 32;
// Stands for a space at which no line ends, until Wrap is done.
constexpr char kNoBreak[] = "\x1f";

std::string UsageLine(const std::string& command,
                      const std::vector<PositionalDescription>& positionals) {
  std::string line = absl::StrCat("Usage: ", command, " [flags]");
  for (const PositionalDescription& positional : positionals) {
    const std::string dots = positional.max_count > 1 ? "..." : "";
    const std::string shown = absl::StrCat(positional.name, dots);
    absl::StrAppend(
        &line, " ",
        positional.min_count > 0 ? shown : absl::StrCat("[", shown, "]"));
  }
  return line;
}

std::string Left(const FlagSet::Description& flag) {
  if (flag.type == "bool") return absl::StrCat("  --", flag.name);
  std::string value = flag.info.value_name;
  if (value.empty()) {
    value = flag.type == "int" ? "N" : flag.type == "float" ? "X" : "TEXT";
  }
  return flag.info.value_optional
             ? absl::StrCat("  --", flag.name, "[=", value, "]")
             : absl::StrCat("  --", flag.name, "=", value);
}

std::string Right(const FlagSet::Description& flag) {
  std::string text = flag.info.help;
  if (!flag.info.choices.empty()) {
    std::vector<std::string> shown;
    for (const std::string& choice : flag.info.choices) {
      if (!choice.empty()) shown.push_back(choice);
    }
    absl::StrAppend(&text, " One of ", absl::StrJoin(shown, ", "), ".");
  }
  if (flag.info.required) {
    absl::StrAppend(&text, " (required)");
  } else if (!flag.default_value.empty()) {
    absl::StrAppend(&text, " (default:", kNoBreak, flag.default_value, ")");
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

void AppendEntry(const std::string& left, const std::string& right,
                 std::string* out) {
  std::string line = left;
  const std::vector<std::string> lines = Wrap(right, kColumns - kIndent);
  size_t next = 0;
  if (left.size() + 2 <= kIndent && !lines.empty()) {
    line.resize(kIndent, ' ');
    line += lines[next++];
  }
  absl::StrAppend(out, line, "\n");
  for (; next < lines.size(); ++next) {
    absl::StrAppend(out, std::string(kIndent, ' '), lines[next], "\n");
  }
}

std::vector<std::string> Groups(
    const std::vector<FlagSet::Description>& flags) {
  std::vector<std::string> groups;
  for (const FlagSet::Description& flag : flags) {
    if (flag.info.hidden) continue;
    if (std::find(groups.begin(), groups.end(), flag.info.group) ==
        groups.end()) {
      groups.push_back(flag.info.group);
    }
  }
  return groups;
}

}  // namespace

std::vector<std::string> Wrap(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back(word);
    } else {
      absl::StrAppend(&lines.back(), " ", word);
    }
  }
  for (std::string& line : lines) {
    line = absl::StrReplaceAll(line, {{kNoBreak, " "}});
  }
  return lines;
}

std::string FormatHelp(const std::string& command, const std::string& summary,
                       const std::vector<PositionalDescription>& positionals,
                       const std::vector<FlagSet::Description>& flags) {
  std::string out;
  for (const std::string& line : Wrap(summary, kColumns)) {
    absl::StrAppend(&out, line, "\n");
  }
  absl::StrAppend(&out, "\n", UsageLine(command, positionals), "\n");
  if (!positionals.empty()) absl::StrAppend(&out, "\nArguments:\n");
  for (const PositionalDescription& positional : positionals) {
    AppendEntry(absl::StrCat("  ", positional.name), positional.help, &out);
  }
  for (const std::string& group : Groups(flags)) {
    absl::StrAppend(&out, "\n", group, ":\n");
    for (const FlagSet::Description& flag : flags) {
      if (flag.info.hidden || flag.info.group != group) continue;
      AppendEntry(Left(flag), Right(flag), &out);
    }
  }
  absl::StrAppend(&out, "\nGeneral:\n");
  AppendEntry("  --config=FILE",
              "YAML file with the same flags, one `name: value` per line; the "
              "command line wins.",
              &out);
  AppendEntry("  --help", "Show this text.", &out);
  absl::StrAppend(&out,
                  "\nA boolean flag without a value turns its default around; "
                  "--flag=true|false sets it.\n");
  return out;
}

}  // namespace elasticdl::flags
