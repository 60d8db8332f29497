#include "config_file.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::flags {
namespace {

std::string Where(const std::string& path, const YAML::Mark& mark) {
  if (mark.is_null()) return path;
  return absl::StrCat(path, ":", mark.line + 1);
}

absl::StatusOr<std::vector<ConfigEntry>> ReadTree(const std::string& path,
                                                  const YAML::Node& root) {
  std::vector<ConfigEntry> entries;
  if (root.IsNull()) return entries;
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(path, root.Mark()),
                     ": expected lines of the form `flag_name: value`"));
  }
  std::set<std::string> seen;
  for (const auto& item : root) {
    ConfigEntry entry;
    entry.where = Where(path, item.first.Mark());
    if (!item.first.IsScalar()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.where, ": a flag's name must be a plain word"));
    }
    entry.name = item.first.Scalar();
    if (!item.second.IsScalar() && !item.second.IsNull()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.where, ": the value of ", entry.name,
                       " must be a single text or number, written as on the "
                       "command line"));
    }
    if (item.second.IsScalar()) entry.value = item.second.Scalar();
    if (!seen.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.where, ": ", entry.name, " is given twice"));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(
    const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config: ", text.status().message()));
  }
  try {
    return ReadTree(path, YAML::Load(*text));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(path, error.mark), ": not YAML: ", error.msg));
  }
}

}  // namespace elasticdl::flags
