// Scans C++ sources for includes and class definitions.
#include "source_scan.h"

#include <deque>
#include <regex>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::model {
namespace {

struct Include {
  std::string name;
  bool quoted = false;
};

std::vector<Include> IncludesOf(const std::string& content) {
  static const auto& pattern = *new std::regex(
      "(^|\n)[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]");
  std::vector<Include> includes;
  const std::string text = StripComments(content);
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end;
       it != end; ++it) {
    includes.push_back({(*it)[3].str(), (*it)[2].str() == "\""});
  }
  return includes;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The path of an included file, or "" for a system header.
std::string Find(const Include& include, const std::string& from,
                 const std::vector<std::string>& quote_dirs,
                 const std::vector<std::string>& include_dirs) {
  std::vector<std::string> dirs;
  if (include.quoted) {
    dirs.push_back(FolderOf(from));
    dirs.insert(dirs.end(), quote_dirs.begin(), quote_dirs.end());
  }
  if (absl::StartsWith(include.name, "elasticdl/")) {
    dirs.insert(dirs.end(), include_dirs.begin(), include_dirs.end());
  }
  for (const std::string& dir : dirs) {
    std::string path = JoinPath(dir, include.name);
    if (FileExists(path) && !IsDirectory(path)) return path;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<SourceFile>> ReadWithIncludes(
    const std::string& path, const std::vector<std::string>& quote_dirs,
    const std::vector<std::string>& include_dirs) {
  std::vector<SourceFile> files;
  std::set<std::string> seen = {path};
  std::deque<std::string> todo = {path};
  while (!todo.empty()) {
    SourceFile file;
    file.path = std::move(todo.front());
    todo.pop_front();
    ELASTICDL_ASSIGN_OR_RETURN(file.content, ReadFile(file.path));
    for (const Include& include : IncludesOf(file.content)) {
      std::string found = Find(include, file.path, quote_dirs, include_dirs);
      if (!found.empty() && seen.insert(found).second) {
        todo.push_back(std::move(found));
      }
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::string StripComments(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.substr(i, 2) == "//") {
      i = std::min(source.find('\n', i), source.size());
      if (i < source.size()) out.push_back('\n');
    } else if (source.substr(i, 2) == "/*") {
      const size_t end = std::min(source.find("*/", i + 2), source.size());
      for (; i < end; ++i) {
        if (source[i] == '\n') out.push_back('\n');
      }
      ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  return out;
}

bool DefinesClass(const std::string& source, const std::string& name) {
  const std::regex pattern(
      absl::StrCat("\\b(struct|class)\\s+", name,
                   "\\b\\s*(final\\b\\s*)?[:{]|\\bTORCH_MODULE\\s*\\(\\s*",
                   name, "\\s*\\)"));
  return std::regex_search(StripComments(source), pattern);
}

}  // namespace elasticdl::model
