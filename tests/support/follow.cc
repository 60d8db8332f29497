#include "support/follow.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "elasticdl/common/check.h"

namespace elasticdl::test {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

FolderWatch::FolderWatch(const std::string& folder)
    : fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  ELASTICDL_CHECK(
      inotify_add_watch(fd_.get(), folder.c_str(),
                        IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_DELETE) >= 0);
}

bool FolderWatch::Until(const std::function<bool()>& condition,
                        absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd event = {fd_.get(), POLLIN, 0};
    poll(&event, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    // The condition is what counts, not which change it was.
    char changes[4096];
    while (read(fd_.get(), changes, sizeof(changes)) > 0) {
    }
  }
  return true;
}

bool WaitForFile(const std::string& path, absl::Duration timeout) {
  FolderWatch watch(FolderOf(path));
  return watch.Until([&] { return access(path.c_str(), F_OK) == 0; }, timeout);
}

LineFollower::LineFollower(const std::string& path)
    : path_(path), watch_(FolderOf(path)) {}

bool LineFollower::Fill() {
  if (!file_.valid()) file_.Reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_.valid()) return false;
  char buffer[4096];
  ssize_t n;
  while ((n = read(file_.get(), buffer, sizeof(buffer))) > 0) {
    pending_.append(buffer, static_cast<size_t>(n));
  }
  return pending_.find('\n') != std::string::npos;
}

std::optional<std::string> LineFollower::Next(absl::Duration timeout) {
  if (!watch_.Until([this] { return Fill(); }, timeout)) return std::nullopt;
  const size_t end = pending_.find('\n');
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

}  // namespace elasticdl::test
