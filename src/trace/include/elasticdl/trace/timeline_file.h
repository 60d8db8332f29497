// --timeline: a file of JSON trace events, which Perfetto and chrome://tracing
// open. Each worker is a process in it, with a track for each of its threads;
// times are those of the master's clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/trace/recorder.h"

namespace elasticdl::trace {

// Thread-compatible. The file can be opened at any time, even after the job was
// killed: the format does not need an end.
class TimelineFile {
 public:
  // Viewers get slow beyond this; what comes later is left out, and the file
  // says so.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;

  // What becomes of a file that is there. kContinue: of the same job, whose
  // master was restarted.
  enum class Existing { kReplace, kContinue };

  // An empty path: everything is dropped.
  static absl::StatusOr<std::unique_ptr<TimelineFile>> Open(
      const std::string& path, const std::string& job,
      Existing existing = Existing::kReplace, int64_t max_bytes = kMaxBytes);

  // `offset` brings the worker's clock to the master's; `dropped`: how many
  // spans were lost before these.
  absl::Status Add(int64_t worker_id, const std::vector<Span>& spans,
                   int64_t offset, int64_t dropped);
  // Something that concerns the whole job, in the master's track: a new world,
  // an evaluation.
  absl::Status Mark(const std::string& name, int64_t time,
                    const std::string& detail);
  absl::Status Finish();

  bool full() const { return full_; }

 private:
  TimelineFile() = default;
  void Introduce(int64_t worker_id, std::string& text);
  absl::Status Write(const std::string& text);

  Fd fd_;
  std::string path_;
  int64_t max_bytes_ = kMaxBytes;
  int64_t bytes_ = 0;
  bool full_ = false;
  std::set<int64_t> introduced_;
};

}  // namespace elasticdl::trace
