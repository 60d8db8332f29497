// Waiting for what other processes write, without polling (inotify).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "elasticdl/common/file.h"
#include "support/child_process.h"

namespace elasticdl::test {

// Tells when something in a folder changes. Thread-compatible.
class FolderWatch {
 public:
  // The folder must exist.
  explicit FolderWatch(const std::string& folder);

  // Waits until `condition` holds, which is asked now and after each change in
  // the folder. False when the time is over.
  bool Until(const std::function<bool()>& condition,
             absl::Duration timeout = kPatience);

 private:
  Fd fd_;
};

// Waits until `path` exists; its folder must.
bool WaitForFile(const std::string& path, absl::Duration timeout = kPatience);

// Reads a growing file line by line; it need not exist yet, its folder must.
// Thread-compatible.
class LineFollower {
 public:
  explicit LineFollower(const std::string& path);

  // The next complete line, as soon as there is one; nothing when the time is
  // over.
  std::optional<std::string> Next(absl::Duration timeout = kPatience);

 private:
  bool Fill();

  const std::string path_;
  FolderWatch watch_;
  Fd file_;
  std::string pending_;
};

}  // namespace elasticdl::test
