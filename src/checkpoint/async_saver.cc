#include "elasticdl/checkpoint/async_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::checkpoint {
namespace {

// Copying less takes a few milliseconds, and little memory.
constexpr int64_t kLeastLiveBytes = 16 << 20;

}  // namespace

Saver::LiveRule AsyncSaver::live_rule() const {
  LiveRule rule;
  rule.least_bytes = kLeastLiveBytes;
  return rule;
}

AsyncSaver::AsyncSaver(std::string dir, SaveOptions options)
    : dir_(std::move(dir)),
      options_(options),
      thread_("checkpoint", [this] { Run(); }) {}

AsyncSaver::~AsyncSaver() {
  Stop();
  Join();
}

void AsyncSaver::Submit(OwnedSnapshot snapshot, Done done) {
  const int64_t version = snapshot.snapshot.version;
  Job job{std::move(snapshot), std::move(done)};
  // Its memory is freed after the lock is released.
  std::optional<Job> replaced;
  bool refused = false;
  {
    MutexLock lock(mu_);
    refused = stopped_;
    if (!refused) {
      replaced = std::exchange(waiting_, std::move(job));
      if (replaced.has_value()) {
        Cancel(*replaced, absl::StrCat("replaced by version ", version,
                                       ", which came before it could start"));
      }
    }
  }
  changed_.NotifyAll();
  // `job` was moved from only if it was accepted.
  if (refused && job.done) {  // NOLINT(bugprone-use-after-move)
    job.done(absl::CancelledError(
        absl::StrCat("save checkpoint version ", version, ": stopped")));
  }
}

void AsyncSaver::Cancel(Job& job, absl::string_view why) {
  cancelled_.push_back(
      {std::move(job.done), absl::CancelledError(absl::StrCat(
                                "save checkpoint version ",
                                job.snapshot.snapshot.version, ": ", why))});
}

absl::Status AsyncSaver::Flush(absl::Duration timeout) {
  const Clock& clock = Clock::Real();
  const absl::Time deadline = clock.Now() + timeout;
  MutexLock lock(mu_);
  while (busy_ || waiting_.has_value() || !cancelled_.empty()) {
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("save checkpoint in ", dir_, ": not finished after ",
                       absl::FormatDuration(timeout)));
    }
    changed_.WaitFor(mu_, left);
  }
  return absl::OkStatus();
}

void AsyncSaver::Stop() {
  std::optional<Job> dropped;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    dropped = std::exchange(waiting_, std::nullopt);
    if (dropped.has_value()) Cancel(*dropped, "stopped");
  }
  changed_.NotifyAll();
}

void AsyncSaver::Join() { thread_.Join(); }

void AsyncSaver::Run() {
  while (true) {
    std::deque<Cancelled> cancelled;
    std::optional<Job> job;
    {
      MutexLock lock(mu_);
      busy_ = false;
      changed_.NotifyAll();
      while (!waiting_.has_value() && cancelled_.empty() && !stopped_) {
        changed_.Wait(mu_);
      }
      if (!waiting_.has_value() && cancelled_.empty()) return;
      busy_ = true;
      cancelled.swap(cancelled_);
      job = std::exchange(waiting_, std::nullopt);
    }
    for (Cancelled& item : cancelled) {
      if (item.done) item.done(item.reason);
    }
    if (!job.has_value()) continue;
    const absl::StatusOr<std::string> path =
        Save(dir_, job->snapshot.snapshot, options_);
    // Free the memory before the callback reports the save.
    job->snapshot = OwnedSnapshot();
    if (job->done) job->done(path);
  }
}

}  // namespace elasticdl::checkpoint
