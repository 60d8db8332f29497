#include "member_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace elasticdl::collective {

MemberWatch::MemberWatch(std::unique_ptr<TcpMesh> mesh)
    : mesh_(std::move(mesh)) {}

MemberWatch::~MemberWatch() {
  End("this member left");
  thread_.Join();
}

void MemberWatch::Start() {
  {
    MutexLock lock(mu_);
    running_ = 1;
  }
  thread_ = Thread("member-watch", [this] { Run(); });
}

absl::Status MemberWatch::Enter() {
  MutexLock lock(mu_);
  running_ = completed_ + 1;
  if (running_ > last_) {
    EndLocked(absl::StrCat("rank ", last_rank_, " left"));
  }
  return mesh_->Check();
}

void MemberWatch::Complete() {
  MutexLock lock(mu_);
  completed_ = running_;
}

void MemberWatch::End(const std::string& reason) {
  MutexLock lock(mu_);
  EndLocked(reason);
}

void MemberWatch::EndLocked(const std::string& reason) {
  if (ended_) return;
  ended_ = true;
  for (int rank = 0; rank < mesh_->size(); ++rank) {
    if (rank == mesh_->rank()) continue;
    // Nothing else is ever sent, so there is room; who is gone need not know.
    [[maybe_unused]] const ssize_t sent =
        send(mesh_->socket(rank), &completed_, sizeof(completed_),
             MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  mesh_->Abort(reason);
  for (Sleeper* const sleeper : sleepers_) sleeper->Wake();
}

void MemberWatch::Add(Sleeper* sleeper) {
  MutexLock lock(mu_);
  sleepers_.insert(sleeper);
}

void MemberWatch::Remove(Sleeper* sleeper) {
  MutexLock lock(mu_);
  sleepers_.erase(sleeper);
}

void MemberWatch::Lost(int rank, const std::string& why) {
  End(absl::StrCat("rank ", mesh_->rank(), " lost rank ", rank, ": ", why));
}

bool MemberWatch::Hear(int rank) {
  int64_t completed = 0;
  const ssize_t got = recv(mesh_->socket(rank), &completed, sizeof(completed),
                           MSG_DONTWAIT | MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) {
    Lost(rank, std::strerror(errno));
    return false;
  }
  if (got != sizeof(completed)) {
    // Eight bytes travel in one piece; fewer are no farewell.
    Lost(rank, "it closed the connection");
    return false;
  }
  MutexLock lock(mu_);
  if (completed < last_) {
    last_ = completed;
    last_rank_ = rank;
  }
  if (running_ > last_ && running_ > completed_) {
    EndLocked(absl::StrCat("rank ", rank, " left or broke the world"));
  }
  return false;
}

// Ends when the world has ended here, which shuts all connections, or when all
// others are gone.
void MemberWatch::Run() {
  std::vector<pollfd> fds;
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh_->size(); ++rank) {
    if (rank == mesh_->rank()) continue;
    fds.push_back({mesh_->socket(rank), POLLIN, 0});
    ranks.push_back(rank);
  }
  while (!fds.empty()) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (!mesh_->Check().ok()) return;
    for (size_t i = fds.size(); i-- > 0;) {
      if (fds[i].revents == 0 || Hear(ranks[i])) continue;
      fds.erase(fds.begin() + static_cast<ptrdiff_t>(i));
      ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

}  // namespace elasticdl::collective
