// Resolves --model_zoo, --model_def and function names to files and symbols.
#include "resolve.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::model {
namespace {

constexpr char kDefaultSymbol[] = "custom_model";
// How many files of a zoo are searched for suggestions. There is a limit
// because --model_zoo may be / by mistake.
constexpr int kMaxFilesSearched = 10000;

std::string InZoo(const std::string& model_zoo, const std::string& path) {
  if (model_zoo.empty() || absl::StartsWith(path, "/")) return path;
  return JoinPath(model_zoo, path);
}

std::string WithoutExtension(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

bool HasExtension(const std::string& path,
                  std::initializer_list<absl::string_view> extensions) {
  return std::any_of(
      extensions.begin(), extensions.end(),
      [&](absl::string_view e) { return absl::EndsWith(path, e); });
}

bool IsFile(const std::string& path) {
  return FileExists(path) && !IsDirectory(path);
}

// The sources and libraries that `base` (a path without extension) may mean. A
// library comes last, because it may be older than the source.
void AddCandidates(const std::string& base, const std::string& symbol,
                   std::vector<Definition>& candidates) {
  candidates.push_back({Kind::kSource, base + ".cc", symbol});
  candidates.push_back({Kind::kSource, base + ".cpp", symbol});
  candidates.push_back({Kind::kLibrary, base + ".so", symbol});
}

// Everything that `def` may mean, best match first.
std::vector<Definition> Candidates(const std::string& zoo,
                                   const std::string& def) {
  std::vector<Definition> all;
  if (HasExtension(def, {".so"})) {
    all.push_back({Kind::kLibrary, InZoo(zoo, def), kDefaultSymbol});
  } else if (HasExtension(def, {".pt", ".pth"})) {
    all.push_back({Kind::kTorchScript, InZoo(zoo, def), ""});
  } else if (HasExtension(def, {".cc", ".cpp", ".cxx"})) {
    all.push_back({Kind::kSource, InZoo(zoo, def), kDefaultSymbol});
  } else if (HasExtension(def, {".py"})) {
    AddCandidates(WithoutExtension(InZoo(zoo, def)), kDefaultSymbol, all);
  } else if (absl::StrContains(def, '/')) {
    AddCandidates(InZoo(zoo, def), kDefaultSymbol, all);
  } else {
    const std::string path = absl::StrReplaceAll(def, {{".", "/"}});
    const size_t dot = def.rfind('.');
    if (dot != std::string::npos) {
      AddCandidates(InZoo(zoo, path.substr(0, dot)), def.substr(dot + 1), all);
    }
    AddCandidates(InZoo(zoo, path), kDefaultSymbol, all);
  }
  return all;
}

// Suggestions: the --model_def of files in other folders of the zoo that have
// the missing file's name, sorted.
std::vector<std::string> Elsewhere(const std::string& zoo,
                                   const Definition& missing) {
  std::vector<std::string> names;
  if (missing.kind != Kind::kSource) return names;
  const std::filesystem::path wanted =
      std::filesystem::path(missing.path).stem();
  std::error_code error;
  int left = kMaxFilesSearched;
  for (std::filesystem::recursive_directory_iterator it(zoo, error), end;
       !error && it != end && left > 0; it.increment(error), --left) {
    const std::filesystem::path& path = it->path();
    if (path.extension() != ".cc" || path.stem() != wanted) continue;
    const std::string module =
        path.lexically_relative(zoo).replace_extension().string();
    if (absl::StrContains(module, '.'))
      continue;  // Cannot be written as a --model_def.
    names.push_back(
        absl::StrCat("--model_def=", absl::StrReplaceAll(module, {{"/", "."}}),
                     ".", missing.symbol));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Lists the source file for each possible meaning; the documentation lists the
// other kinds of files. `custom_model` was certainly not meant as a file.
absl::Status Missing(const std::string& zoo, const std::string& def,
                     const std::vector<Definition>& candidates) {
  std::vector<std::string> files;
  for (const Definition& candidate : candidates) {
    const std::filesystem::path path = candidate.path;
    if (path.extension() == ".cc" && path.stem() != kDefaultSymbol) {
      files.push_back(candidate.path);
    }
  }
  if (files.empty()) files.push_back(candidates.front().path);
  std::string message = absl::StrCat("--model_def=", def, ": there is no file ",
                                     absl::StrJoin(files, " or "));
  if (zoo.empty()) {
    return absl::NotFoundError(absl::StrCat(
        message, "; --model_zoo, the folder of the models, is not given"));
  }
  if (!IsDirectory(zoo)) {
    return absl::NotFoundError(
        absl::StrCat(message, "; --model_zoo=", zoo, " is not a folder"));
  }
  absl::StrAppend(&message, " (--model_zoo=", zoo, ")");
  const std::vector<std::string> others = Elsewhere(zoo, candidates.front());
  if (!others.empty()) {
    absl::StrAppend(&message, "; did you mean ", absl::StrJoin(others, " or "),
                    "?");
  }
  return absl::NotFoundError(message);
}

}  // namespace

bool IsIdentifier(const std::string& text) {
  if (text.empty() || absl::ascii_isdigit(text[0])) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool IsExpression(const std::string& text) {
  return absl::StrContains(text, '(') || absl::StrContains(text, ',');
}

absl::StatusOr<Definition> ResolveDefinition(const LoadOptions& options) {
  if (options.model_def.empty()) {
    return absl::InvalidArgumentError("--model_def is empty");
  }
  const auto candidates = Candidates(options.model_zoo, options.model_def);
  for (const Definition& candidate : candidates) {
    if (!IsFile(candidate.path)) continue;
    if (candidate.kind == Kind::kSource && !IsIdentifier(candidate.symbol)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--model_def=", options.model_def, ": '",
                       candidate.symbol, "' is not a name"));
    }
    return candidate;
  }
  return Missing(options.model_zoo, options.model_def, candidates);
}

absl::StatusOr<FunctionName> ResolveFunction(const std::string& model_zoo,
                                             const std::string& flag,
                                             const std::string& value) {
  const size_t dot = value.rfind('.');
  FunctionName name;
  name.symbol = dot == std::string::npos ? value : value.substr(dot + 1);
  if (!IsIdentifier(name.symbol)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value, ": not the name of a function"));
  }
  if (dot == std::string::npos) return name;
  name.path = InZoo(model_zoo,
                    absl::StrReplaceAll(value.substr(0, dot), {{".", "/"}})) +
              ".cc";
  if (IsFile(name.path)) return name;
  return absl::NotFoundError(
      absl::StrCat("--", flag, "=", value, ": there is no file ", name.path));
}

}  // namespace elasticdl::model
