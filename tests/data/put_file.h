// Writes a file for a test, without the syncs of WriteFileAtomic.
#pragma once

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl::data {

// Replaces the file. False on failure.
inline bool PutFile(const std::string& path, absl::string_view bytes) {
  // Truncating instead would make some file systems write it out at once.
  std::remove(path.c_str());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file.good();
}

}  // namespace elasticdl::data
