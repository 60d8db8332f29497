#include "kept_states.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/keep/kept_reader.h"
#include "elasticdl/process.h"

namespace elasticdl::master {
namespace {

bool IsReadable(const Fd& fd) {
  pollfd poller = {fd.get(), POLLIN, 0};
  return poll(&poller, 1, 0) == 1;
}

}  // namespace

StateKeeper::StateKeeper()
    : dropped_(std::numeric_limits<size_t>::max()), closer_("keeper", [this] {
        // Each is closed at the end of its turn.
        while (dropped_.Pop().has_value()) {
        }
      }) {}

StateKeeper::~StateKeeper() {
  dropped_.Close();
  closer_.Join();
}

absl::StatusOr<StateKeeper::Entry> StateKeeper::Open(int64_t worker_id,
                                                     pid_t pid, int fd) {
  Entry entry;
  entry.pidfd = process::OpenPidfd(pid);
  if (!entry.pidfd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("find process ", pid));
  }
  ELASTICDL_ASSIGN_OR_RETURN(
      entry.memory, keep::OpenMemory(absl::StrCat("/proc/", pid, "/fd/", fd)));
  ELASTICDL_RETURN_IF_ERROR(keep::CheckOwner(entry.memory, worker_id, pid));
  // While it runs, nobody else has its pid.
  if (IsReadable(entry.pidfd)) {
    return absl::UnavailableError("its process has ended");
  }
  return entry;
}

void StateKeeper::Keep(int64_t worker_id, pid_t pid, int fd) {
  Drop(worker_id);
  absl::StatusOr<Entry> entry = Open(worker_id, pid, fd);
  if (!entry.ok()) {
    LogWarning("the state of worker ", worker_id,
               " is not kept: ", entry.status().message());
    return;
  }
  entries_[worker_id] = *std::move(entry);
}

std::vector<int64_t> StateKeeper::Workers() const {
  std::vector<int64_t> ids;
  ids.reserve(entries_.size());
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

bool StateKeeper::HasEnded(int64_t worker_id) const {
  const auto found = entries_.find(worker_id);
  if (found == entries_.end()) return true;
  return IsReadable(found->second.pidfd);
}

absl::StatusOr<KeptStates::Kept> StateKeeper::Look(int64_t worker_id) const {
  const auto found = entries_.find(worker_id);
  if (found == entries_.end()) return absl::NotFoundError("nothing is kept");
  ELASTICDL_ASSIGN_OR_RETURN(const keep::KeptReader reader,
                             keep::KeptReader::Open(found->second.memory));
  Kept kept;
  kept.worker_id = worker_id;
  kept.path =
      absl::StrCat("/proc/", getpid(), "/fd/", found->second.memory.get());
  kept.facts = reader.facts();
  return kept;
}

void StateKeeper::Drop(int64_t worker_id) {
  const auto found = entries_.find(worker_id);
  if (found == entries_.end()) return;
  dropped_.Push(std::make_shared<Fd>(std::move(found->second.memory)));
  entries_.erase(found);
}

}  // namespace elasticdl::master
