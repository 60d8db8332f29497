// libpng's simplified interface.
#include "png_image.h"

#include <png.h>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"

namespace elasticdl::data::internal {
namespace {

// Frees what libpng holds.
struct PngState {
  png_image image{};
  PngState() { image.version = PNG_IMAGE_VERSION; }
  ~PngState() { png_image_free(&image); }
};

absl::Status Failed(absl::string_view what, const std::string& path,
                    const png_image& image) {
  return absl::DataLossError(
      absl::StrCat(what, " ", path, ": ", image.message));
}

}  // namespace

absl::StatusOr<PngImage> ReadPng(const std::string& path) {
  if (!FileExists(path)) {
    return absl::NotFoundError(absl::StrCat("read ", path, ": no such file"));
  }
  PngState state;
  png_image& png = state.image;
  if (png_image_begin_read_from_file(&png, path.c_str()) == 0) {
    return Failed("read", path, png);
  }
  const bool color = (png.format & PNG_FORMAT_FLAG_COLOR) != 0;
  png.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  PngImage image;
  image.width = png.width;
  image.height = png.height;
  image.channels = color ? 3 : 1;
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) ==
      0) {
    return Failed("read", path, png);
  }
  return image;
}

absl::Status WritePng(const std::string& path, const PngImage& image) {
  PngState state;
  png_image& png = state.image;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&png, path.c_str(), 0, image.pixels.data(), 0,
                              nullptr) == 0) {
    return Failed("write", path, png);
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::data::internal
