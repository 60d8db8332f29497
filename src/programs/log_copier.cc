#include "log_copier.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"

namespace elasticdl::programs {
namespace {

// Of some ten thousand pods.
constexpr size_t kMaxNotesBytes = 1 << 20;
// A line that is longer than this is copied in parts.
constexpr size_t kMaxPendingBytes = 1 << 20;

bool SameFile(int a, int b) {
  struct stat first;
  struct stat second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogCopier>> LogCopier::Start(
    const std::string& folder, const std::string& target,
    const std::string& notes, bool go_on) {
  std::unique_ptr<LogCopier> copier(new LogCopier());
  copier->folder_ = folder;
  copier->path_ = target;
  copier->target_.Reset(
      open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!copier->target_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("--log_file_path: open ", target));
  }
  copier->notes_.Reset(
      open(notes.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (go_on ? 0 : O_TRUNC),
           0644));
  if (!copier->notes_.valid()) return ErrnoToStatus(errno, notes);
  copier->changes_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  copier->stop_.Reset(eventfd(0, EFD_CLOEXEC));
  if (!copier->changes_.valid() || !copier->stop_.valid() ||
      inotify_add_watch(copier->changes_.get(), folder.c_str(),
                        IN_MODIFY | IN_CREATE) < 0) {
    return ErrnoToStatus(errno,
                         absl::StrCat("--log_file_path: watch ", folder));
  }
  if (go_on) copier->ReadNotes();
  copier->thread_ =
      Thread("log copier", [copier = copier.get()] { copier->Run(); });
  return copier;
}

LogCopier::~LogCopier() {
  if (!stop_.valid()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(stop_.get(), &one, sizeof(one));
  thread_.Join();
}

void LogCopier::Run() {
  while (true) {
    pollfd fds[] = {{changes_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    char events[4096];
    while (read(changes_.get(), events, sizeof(events)) > 0) {
    }
    const bool stop = fds[1].revents != 0;
    CopyNew(/*unfinished_lines=*/stop);
    if (stop) return;
  }
}

void LogCopier::ReadNotes() {
  std::string text(kMaxNotesBytes, '\0');
  const ssize_t n = pread(notes_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t offset = 0;
    if (!absl::SimpleAtoi(parts.first, &offset) || offset < 0 ||
        parts.second.empty()) {
      continue;
    }
    sources_[std::string(parts.second)].offset = offset;
  }
}

// A kill may come between copying and this: a few lines are then there twice.
void LogCopier::WriteNotes() {
  std::string text;
  for (const auto& [name, source] : sources_) {
    const auto pending = static_cast<off_t>(source.pending.size());
    absl::StrAppend(&text, source.offset - pending, " ", name, "\n");
  }
  if (text == noted_) return;
  // Offsets only grow and files only come, so that nothing of longer notes is
  // left behind them.
  if (pwrite(notes_.get(), text.data(), text.size(), 0) > 0) {
    noted_ = std::move(text);
  }
}

void LogCopier::CopyNew(bool unfinished_lines) {
  const auto names = ListDirectory(folder_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, ".log")) continue;
    Source& source = Find(name);
    if (source.fd.valid() && !source.is_target) Copy(source, unfinished_lines);
  }
  WriteNotes();
}

LogCopier::Source& LogCopier::Find(const std::string& name) {
  Source& source = sources_[name];
  if (!source.fd.valid()) {
    source.fd.Reset(
        open(JoinPath(folder_, name).c_str(), O_RDONLY | O_CLOEXEC));
    source.is_target = SameFile(source.fd.get(), target_.get());
  }
  return source;
}

void LogCopier::Copy(Source& source, bool unfinished_lines) {
  char buffer[65536];
  ssize_t n;
  while ((n = pread(source.fd.get(), buffer, sizeof(buffer), source.offset)) >
         0) {
    source.offset += n;
    source.pending.append(buffer, static_cast<size_t>(n));
    size_t whole = source.pending.rfind('\n') + 1;  // 0 without a newline
    if (whole == 0 && source.pending.size() > kMaxPendingBytes) {
      whole = source.pending.size();
    }
    const absl::Status status =
        WriteAll(target_.get(),
                 absl::string_view(source.pending).substr(0, whole), path_);
    source.pending.erase(0, whole);
    if (!status.ok() && !std::exchange(failed_, true)) {
      LogWarning("--log_file_path is incomplete: ", status.message());
    }
  }
  if (unfinished_lines && !source.pending.empty()) {
    WriteAll(target_.get(), absl::StrCat(source.pending, "\n"), path_)
        .IgnoreError();
    source.pending.clear();
  }
}

}  // namespace elasticdl::programs
