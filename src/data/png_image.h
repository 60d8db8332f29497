// PNG images, for data sets that come as one large picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::data::internal {

// Rows from the top, pixels from the left, `channels` bytes each.
struct PngImage {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;  // 1 grey or 3 RGB
  std::vector<uint8_t> pixels;
};

// Grey stays grey, everything else becomes RGB; an alpha channel is dropped.
absl::StatusOr<PngImage> ReadPng(const std::string& path);
// For tests: the opposite.
absl::Status WritePng(const std::string& path, const PngImage& image);

}  // namespace elasticdl::data::internal
