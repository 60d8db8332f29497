// Reads the toolchain file: lines `key=value`, several of a key in order;
// ${root} stands for the folder two levels above the file.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/model/compiler.h"

namespace elasticdl::model {
namespace {

constexpr char kBelowRoot[] = "share/elasticdl/model_toolchain.txt";

std::string Parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

absl::Status Set(absl::string_view key, std::string value, Toolchain& out) {
  if (key == "compiler") {
    out.compiler = std::move(value);
  } else if (key == "compiler_id") {
    out.compiler_id = std::move(value);
  } else if (key == "flag") {
    out.flags.push_back(std::move(value));
  } else if (key == "include") {
    out.include_dirs.push_back(std::move(value));
  } else if (key == "link") {
    out.link_flags.push_back(std::move(value));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Toolchain> ReadToolchain(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::string root = Parent(Parent(Parent(path)));
  Toolchain toolchain;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::Status set =
        Set(parts.first, absl::StrReplaceAll(parts.second, {{"${root}", root}}),
            toolchain);
    if (!set.ok()) return Annotate(set, path);
  }
  return toolchain;
}

absl::StatusOr<Toolchain> FindToolchain(const std::string& executable) {
  return ReadToolchain(JoinPath(Parent(Parent(executable)), kBelowRoot));
}

}  // namespace elasticdl::model
