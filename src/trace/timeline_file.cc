#include "elasticdl/trace/timeline_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"

namespace elasticdl::trace {
namespace {

// The tracks of a worker, in this order.
constexpr std::array<absl::string_view, 5> kThreads = {
    "training", "all-reduce", "feed", "checkpoint", "servers"};
// The master is the first process.
constexpr int64_t kMasterPid = 1;

int64_t Pid(int64_t worker_id) { return worker_id + 2; }

size_t ThreadOf(Kind kind) {
  const absl::string_view name = KindThread(kind);
  size_t thread = 0;
  while (kThreads[thread] != name) ++thread;
  return thread;
}

std::string Quote(const std::string& text) {
  return JsonText(nlohmann::json(text));
}

// Microseconds, to the nanosecond.
void AppendMicroseconds(std::string& text, int64_t nanoseconds) {
  absl::StrAppendFormat(&text, "%d.%03d", nanoseconds / 1000,
                        nanoseconds % 1000);
}

void AppendName(std::string& text, absl::string_view what, int64_t pid,
                size_t thread, const std::string& name) {
  absl::StrAppend(&text, "{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid,
                  ",\"tid\":", thread, ",\"args\":{\"name\":", Quote(name),
                  "}},\n");
}

absl::string_view NumberName(Kind kind) {
  return kind == Kind::kAllReduce ? "bucket" : "step";
}

// Cuts off what stands behind the last whole event of a file. Returns the
// length of what is left, 0 if that is nothing.
absl::StatusOr<int64_t> CutToWholeEvents(const Fd& fd,
                                         const std::string& what) {
  struct stat stat {};
  if (fstat(fd.get(), &stat) != 0) return ErrnoToStatus(errno, what);
  // More than the longest event.
  std::string tail(std::min<int64_t>(stat.st_size, 1 << 16), '\0');
  const int64_t begin = stat.st_size - static_cast<int64_t>(tail.size());
  const ssize_t got = pread(fd.get(), tail.data(), tail.size(), begin);
  if (got != static_cast<ssize_t>(tail.size())) {
    return ErrnoToStatus(got < 0 ? errno : EIO, what);
  }
  const size_t last = tail.rfind("},\n");
  const int64_t end =
      last == std::string::npos ? 0 : begin + static_cast<int64_t>(last) + 3;
  if (ftruncate(fd.get(), end) != 0 || lseek(fd.get(), end, SEEK_SET) != end) {
    return ErrnoToStatus(errno, what);
  }
  return end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TimelineFile>> TimelineFile::Open(
    const std::string& path, const std::string& job, Existing existing,
    int64_t max_bytes) {
  std::unique_ptr<TimelineFile> file(new TimelineFile);
  file->path_ = path;
  file->max_bytes_ = max_bytes;
  if (path.empty()) return file;
  const bool replace = existing == Existing::kReplace;
  file->fd_ = Fd(open(
      path.c_str(),
      (replace ? O_WRONLY | O_TRUNC : O_RDWR) | O_CREAT | O_CLOEXEC, 0600));
  const std::string what = absl::StrCat("--timeline: create ", path);
  if (!file->fd_.valid()) return ErrnoToStatus(errno, what);
  if (!replace) {
    ELASTICDL_ASSIGN_OR_RETURN(file->bytes_, CutToWholeEvents(file->fd_, what));
    if (file->bytes_ > 0) return file;
  }
  std::string text = "[\n";
  AppendName(text, "process_name", kMasterPid, 0,
             absl::StrCat("master of ", job));
  AppendName(text, "thread_name", kMasterPid, 0, "job");
  ELASTICDL_RETURN_IF_ERROR(file->Write(text));
  return file;
}

void TimelineFile::Introduce(int64_t worker_id, std::string& text) {
  if (!introduced_.insert(worker_id).second) return;
  AppendName(text, "process_name", Pid(worker_id), 0,
             absl::StrCat("worker ", worker_id));
  for (size_t i = 0; i < kThreads.size(); ++i) {
    AppendName(text, "thread_name", Pid(worker_id), i,
               std::string(kThreads[i]));
  }
}

absl::Status TimelineFile::Add(int64_t worker_id,
                               const std::vector<Span>& spans, int64_t offset,
                               int64_t dropped) {
  if (!fd_.valid() || full_) return absl::OkStatus();
  std::string text;
  text.reserve(spans.size() * 128);
  Introduce(worker_id, text);
  const std::string pid = absl::StrCat(Pid(worker_id));
  if (dropped > 0 && !spans.empty()) {
    absl::StrAppend(&text, "{\"ph\":\"i\",\"s\":\"p\",\"name\":\"",
                    "spans dropped\",\"pid\":", pid, ",\"tid\":0,\"ts\":");
    AppendMicroseconds(text, spans[0].begin + offset);
    absl::StrAppend(&text, ",\"args\":{\"spans\":", dropped, "}},\n");
  }
  for (const Span& span : spans) {
    // Waiting for nothing in particular is best shown as nothing.
    if (span.kind == Kind::kIdle) continue;
    absl::StrAppend(&text, "{\"ph\":\"X\",\"name\":\"", KindName(span.kind),
                    "\",\"pid\":", pid, ",\"tid\":", ThreadOf(span.kind),
                    ",\"ts\":");
    AppendMicroseconds(text, span.begin + offset);
    absl::StrAppend(&text, ",\"dur\":");
    AppendMicroseconds(text, span.end - span.begin);
    absl::StrAppend(&text, ",\"args\":{\"", NumberName(span.kind),
                    "\":", span.number, "}},\n");
  }
  return Write(text);
}

absl::Status TimelineFile::Mark(const std::string& name, int64_t time,
                                const std::string& detail) {
  if (!fd_.valid() || full_) return absl::OkStatus();
  std::string text =
      absl::StrCat("{\"ph\":\"i\",\"s\":\"g\",\"name\":", Quote(name),
                   ",\"pid\":", kMasterPid, ",\"tid\":0,\"ts\":");
  AppendMicroseconds(text, time);
  absl::StrAppend(&text, ",\"args\":{\"detail\":", Quote(detail), "}},\n");
  return Write(text);
}

absl::Status TimelineFile::Finish() {
  if (!fd_.valid()) return absl::OkStatus();
  // The last event of a JSON list has no comma behind it.
  std::string text;
  AppendName(text, "process_labels", kMasterPid, 0,
             full_ ? "cut off: the file was full" : "complete");
  text.replace(text.size() - 2, 2, "\n]\n");
  absl::Status written =
      WriteAll(fd_.get(), text, absl::StrCat("--timeline=", path_));
  fd_.Reset();
  return written;
}

absl::Status TimelineFile::Write(const std::string& text) {
  if (bytes_ + static_cast<int64_t>(text.size()) > max_bytes_) {
    full_ = true;
    return absl::ResourceExhaustedError(
        absl::StrCat("--timeline=", path_, " has ", bytes_,
                     " bytes: the rest of the job is left out"));
  }
  bytes_ += static_cast<int64_t>(text.size());
  return WriteAll(fd_.get(), text, absl::StrCat("--timeline=", path_));
}

}  // namespace elasticdl::trace
