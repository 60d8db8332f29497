// --log_file_path: everything that a job's pods write, in one file.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::programs {

// Copies the *.log files of a folder to one file as they grow, whole lines at a
// time, so that those of several pods do not mix. It has its own thread; pods
// write to their own logs as usual and do not depend on it. Thread-compatible.
class LogCopier {
 public:
  // Appends to `target`; `folder` must exist. Files that come later are copied
  // too, the target itself never. `notes`: a file outside the folder that says
  // how far it has come. `go_on`: from there, because the program was started
  // again; what was written meanwhile is not lost.
  static absl::StatusOr<std::unique_ptr<LogCopier>> Start(
      const std::string& folder, const std::string& target,
      const std::string& notes, bool go_on);
  // Copies what has been written until now.
  ~LogCopier();
  LogCopier(const LogCopier&) = delete;
  LogCopier& operator=(const LogCopier&) = delete;

 private:
  struct Source {
    Fd fd;
    off_t offset = 0;
    std::string pending;  // the beginning of a line
    bool is_target = false;
  };
  LogCopier() = default;
  void Run();
  void ReadNotes();
  void WriteNotes();
  void CopyNew(bool unfinished_lines);
  Source& Find(const std::string& name);
  void Copy(Source& source, bool unfinished_lines);

  // Constant after Start.
  std::string folder_;
  std::string path_;
  Fd target_;
  Fd notes_;
  Fd changes_;
  Fd stop_;
  // Of the thread.
  std::map<std::string, Source> sources_;
  // What was written to notes_ last.
  std::string noted_;
  bool failed_ = false;

  Thread thread_;
};

}  // namespace elasticdl::programs
