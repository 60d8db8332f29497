// See idx_file.h.
#include "idx_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "compression.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "mapped_file.h"

namespace elasticdl::data::internal {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr absl::string_view kGzipMagic = "\x1f\x8b";

uint32_t LoadBigEndian32(const char* data) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(data);
  return static_cast<uint32_t>(bytes[0]) << 24 |
         static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

absl::StatusOr<IdxFile> IdxFile::Open(const std::string& path) {
  IdxFile file;
  file.path_ = path;
  ELASTICDL_ASSIGN_OR_RETURN(auto map, MappedFile::Open(path));
  absl::string_view bytes = map->bytes();
  file.memory_ = map;
  if (absl::StartsWith(bytes, kGzipMagic)) {
    auto pool = std::make_shared<BufferPool>();
    auto unpacked = GzipDecode(bytes, *pool);
    if (!unpacked.ok()) {
      return Annotate(unpacked.status(), absl::StrCat("read ", path));
    }
    bytes = unpacked->bytes;
    file.memory_ = unpacked->memory;
  }
  const absl::Status status = file.ParseHeader(bytes);
  if (!status.ok()) return Annotate(status, absl::StrCat("read ", path));
  return file;
}

absl::Status IdxFile::ParseHeader(absl::string_view bytes) {
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0) {
    return absl::DataLossError("not an IDX file at byte offset 0");
  }
  if (static_cast<uint8_t>(bytes[2]) != kUnsignedByte) {
    return absl::InvalidArgumentError(
        absl::StrCat("IDX element type ", static_cast<uint8_t>(bytes[2]),
                     " is not supported, only unsigned bytes (8)"));
  }
  const auto dimensions = static_cast<uint8_t>(bytes[3]);
  const size_t header_bytes = 4 + 4 * static_cast<size_t>(dimensions);
  if (dimensions == 0 || bytes.size() < header_bytes) {
    return absl::DataLossError("truncated IDX header at byte offset 4");
  }
  num_items_ = LoadBigEndian32(bytes.data() + 4);
  for (size_t i = 1; i < dimensions; ++i) {
    const uint32_t dimension = LoadBigEndian32(bytes.data() + 4 + 4 * i);
    item_bytes_ *= dimension;
    if (item_bytes_ == 0 || item_bytes_ > bytes.size()) {
      return absl::DataLossError("IDX dimensions do not fit the file");
    }
  }
  items_ = bytes.substr(header_bytes);
  if (items_.size() / item_bytes_ != static_cast<uint64_t>(num_items_) ||
      items_.size() % item_bytes_ != 0) {
    return absl::DataLossError(
        absl::StrCat("the header says ", num_items_, " items of ", item_bytes_,
                     " bytes, the file has ", items_.size(),
                     " bytes after byte offset ", header_bytes));
  }
  return absl::OkStatus();
}

bool LooksLikeIdx(absl::string_view path) {
  const absl::string_view name = BaseName(path);
  return absl::StrContains(name, "-idx") || absl::StrContains(name, ".idx");
}

std::string FindIdxLabels(const std::string& images_path) {
  const absl::string_view name = BaseName(images_path);
  const std::string folder =
      images_path.substr(0, images_path.size() - name.size());
  if (!absl::StrContains(name, "images")) return "";
  const std::string labels = absl::StrCat(
      folder,
      absl::StrReplaceAll(
          name, {{"images", "labels"}, {"idx3", "idx1"}, {"idx4", "idx1"}}));
  for (const std::string& path :
       {labels, absl::StrCat(labels, ".gz"),
        std::string(absl::StripSuffix(labels, ".gz"))}) {
    if (FileExists(path)) return path;
  }
  return "";
}

}  // namespace elasticdl::data::internal
