#include "local/client.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"
#include "local/http.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

// How long a command waits for a master that is started again.
constexpr absl::Duration kNextMaster = absl::Seconds(20);

// A master that does not answer may have been killed; if the job's client
// starts it again, the next one publishes the address of its page. Made before
// the request whose answer is missing. Thread-compatible.
class NextMaster {
 public:
  explicit NextMaster(const jobdir::JobDir& dir)
      : changes_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        deadline_(Clock::Real().Now() + kNextMaster) {
    if (dir.ReadPids().count("client") == 0) return;
    client_ = WatchJobEnd(dir);
    inotify_add_watch(changes_.get(), dir.path().c_str(), IN_MOVED_TO);
  }

  // False: there is none, or the time is over.
  bool Wait() {
    const absl::Duration left = deadline_ - Clock::Real().Now();
    if (!client_.valid() || left <= absl::ZeroDuration()) return false;
    pollfd fds[] = {{changes_.get(), POLLIN, 0}, {client_.get(), POLLIN, 0}};
    if (poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(left))) < 1) {
      return false;
    }
    char events[4096];
    while (read(changes_.get(), events, sizeof(events)) > 0) {
    }
    return fds[1].revents == 0;
  }

 private:
  const Fd changes_;
  const absl::Time deadline_;
  Fd client_;
};

absl::StatusOr<std::string> Request(const jobdir::JobDir& dir, bool post,
                                    const std::string& path) {
  if (!dir.IsRunning()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", dir.job_name(),
                     " is not running; `elasticdl report` and `elasticdl "
                     "logs` show what it did"));
  }
  NextMaster next(dir);
  absl::StatusOr<std::string> address = dir.ReadHttpAddress();
  if (!address.ok()) {
    return absl::UnavailableError(
        absl::StrCat("job ", dir.job_name(), ": its master is not ready yet"));
  }
  // Read after the address: the master writes the token first.
  ELASTICDL_ASSIGN_OR_RETURN(const std::string token, dir.ReadToken());
  const char* const method = post ? "POST" : "GET";
  absl::StatusOr<HttpReply> reply =
      SendHttp(*address, method, path, token, absl::Seconds(5));
  // A command that was sent may have been obeyed, and a second `stop` kills.
  while (!reply.ok() && (!post || absl::IsUnavailable(reply.status())) &&
         next.Wait()) {
    address = dir.ReadHttpAddress();
    ELASTICDL_RETURN_IF_ERROR(address.status());
    reply = SendHttp(*address, method, path, token, absl::Seconds(5));
  }
  if (!reply.ok()) {
    return absl::UnavailableError(
        absl::StrCat("job ", dir.job_name(), ": no answer from its master at ",
                     *address, " (", reply.status().message(), ")"));
  }
  ELASTICDL_RETURN_IF_ERROR(
      HttpAnswerToStatus(reply->code, reply->body, dir.job_name()));
  return reply->body;
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const jobdir::JobDir& dir,
                                    const std::string& path) {
  return Request(dir, /*post=*/false, path);
}

absl::StatusOr<std::string> HttpPost(const jobdir::JobDir& dir,
                                     const std::string& path) {
  return Request(dir, /*post=*/true, path);
}

Fd WatchJobEnd(const jobdir::JobDir& dir) {
  const auto pids = dir.ReadPids();
  auto it = pids.find("client");
  if (it == pids.end()) it = pids.find("master");
  if (it == pids.end()) return Fd();
  Fd pidfd = process::OpenPidfd(it->second);
  // The pid may belong to another process by now.
  return dir.IsRunning() ? std::move(pidfd) : Fd();
}

JobEnd ReadJobEnd(const jobdir::JobDir& dir) {
  JobEnd end;
  const auto text = ReadFile(dir.EventsFile());
  if (!text.ok()) return end;
  const std::vector<std::string> lines =
      absl::StrSplit(*text, '\n', absl::SkipEmpty());
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const Json json = ParseJson(*line);
    if (!json.is_object() || json.value("event", "") != "job_end") continue;
    end.state = json.value("state", "");
    end.reason = json.value("reason", "");
    return end;
  }
  return end;
}

}  // namespace elasticdl::cli
