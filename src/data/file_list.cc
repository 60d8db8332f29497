#include "file_list.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::data {

absl::StatusOr<std::vector<std::string>> ListFiles(
    const std::string& origin,
    const std::function<bool(const std::string& name)>& accept) {
  if (!FileExists(origin)) {
    return absl::NotFoundError(
        absl::StrCat("open data '", origin, "': no such file or folder"));
  }
  if (!IsDirectory(origin)) return std::vector<std::string>{origin};
  ELASTICDL_ASSIGN_OR_RETURN(const auto names, ListDirectory(origin));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    std::string path = JoinPath(origin, name);
    if (name[0] != '.' && !IsDirectory(path) && accept(name)) {
      files.push_back(std::move(path));
    }
  }
  return files;
}

}  // namespace elasticdl::data
