// See fetch_manifest.h.
#include "fetch_manifest.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "mapped_file.h"

namespace elasticdl::data::internal {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kName = "manifest.json";

int64_t FileBytes(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

absl::Status Unfit(const std::string& path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("read ", path, ": ", why));
}

}  // namespace

absl::StatusOr<FetchManifest> ReadCompleteManifest(
    const std::string& directory) {
  const std::string path = JoinPath(directory, kName);
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const json root = ParseJson(text);
  if (!root.is_object()) return Unfit(path, "not a JSON object");
  FetchManifest manifest;
  // json's accessors throw when a type is another than expected.
  try {
    if (root.at("format") != kFormat) return Unfit(path, "another format");
    manifest.set = root.at("set").get<std::string>();
    manifest.source = root.at("source").get<std::string>();
    manifest.train_records = root.at("train_records").get<int64_t>();
    manifest.test_records = root.at("test_records").get<int64_t>();
    for (const auto& [name, bytes] : root.at("files").items()) {
      if (FileBytes(JoinPath(directory, name)) != bytes.get<int64_t>()) {
        return Unfit(path, absl::StrCat(name, " is missing or incomplete"));
      }
    }
  } catch (const json::exception& error) {
    return Unfit(path, error.what());
  }
  return manifest;
}

absl::Status WriteManifest(const std::string& directory,
                           const std::string& staging,
                           const FetchManifest& manifest) {
  json files = json::object();
  for (const std::string part : {"train", "test"}) {
    const std::string folder = JoinPath(staging, part);
    ELASTICDL_ASSIGN_OR_RETURN(const auto names, ListDirectory(folder));
    for (const std::string& name : names) {
      files[JoinPath(part, name)] = FileBytes(JoinPath(folder, name));
    }
  }
  const json root = {{"format", kFormat},
                     {"set", manifest.set},
                     {"source", manifest.source},
                     {"train_records", manifest.train_records},
                     {"test_records", manifest.test_records},
                     {"files", std::move(files)}};
  return WriteFileAtomic(JoinPath(directory, kName),
                         absl::StrCat(root.dump(2), "\n"));
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  return Sha256Hex(file->bytes());
}

}  // namespace elasticdl::data::internal
