// See elasticdl/data/inspect.h.
#include "elasticdl/data/inspect.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/status.h"
#include "file_list.h"

namespace elasticdl::data {
namespace {

constexpr RecordIoFile::Options kSalvage{/*salvage=*/true};

// Markers and notes beside the data are not data.
bool IsDataName(const std::string& name) {
  return name[0] != '_' && !absl::EndsWith(name, ".json") &&
         !absl::EndsWith(name, ".md");
}

void VerifyFile(const RecordIoFile& file, VerifyResult& result) {
  for (size_t i = 0; i < file.chunks().size(); ++i) {
    ++result.chunks;
    const auto chunk = file.ReadChunk(i);
    if (chunk.ok()) {
      result.records += static_cast<int64_t>(chunk->records.size());
    } else {
      result.problems.push_back(chunk.status());
    }
  }
  if (!file.damage().ok()) result.problems.push_back(file.damage());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListRecordIoFiles(
    const std::string& origin) {
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<std::string> files,
                             ListFiles(origin, IsDataName));
  if (files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("open data '", origin, "': the data set has no records"));
  }
  return files;
}

absl::StatusOr<FileSummary> SummarizeFile(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto file,
                             RecordIoFile::Open(path, kSalvage));
  FileSummary summary;
  summary.path = path;
  summary.variant = file->variant();
  summary.records = file->num_records();
  summary.bytes = file->bytes();
  summary.chunks = static_cast<int64_t>(file->chunks().size());
  std::set<absl::string_view> names;
  for (const ChunkInfo& chunk : file->chunks()) {
    names.insert(CompressorName(chunk.compressor));
  }
  summary.compressor = absl::StrJoin(names, "+");
  summary.damage = file->damage();
  return summary;
}

absl::StatusOr<VerifyResult> VerifyRecordIo(const std::string& origin,
                                            const Progress& progress) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto paths, ListRecordIoFiles(origin));
  VerifyResult result;
  for (const std::string& path : paths) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto file,
                               RecordIoFile::Open(path, kSalvage));
    VerifyFile(*file, result);
    ++result.files;
    if (progress) progress(result.files, static_cast<int64_t>(paths.size()));
  }
  return result;
}

}  // namespace elasticdl::data
