#include "tcp/member_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

// All messages are numbers: one of these, or how many calls the one who leaves
// has completed. They travel in one piece, as nothing else is on the
// connection.
constexpr int64_t kReady = -1;
constexpr int64_t kInFirstCall = -2;

}  // namespace

MemberWatch::MemberWatch(std::unique_ptr<TcpMesh> mesh)
    : mesh_(std::move(mesh)) {}

MemberWatch::~MemberWatch() {
  End(absl::AbortedError("this member left"));
  thread_.Join();
}

void MemberWatch::Start() {
  {
    MutexLock lock(mu_);
    running_ = 1;
  }
  thread_ = Thread("member-watch", [this] { Run(); });
}

absl::Status MemberWatch::AwaitReady(Deadline& deadline) {
  MutexLock lock(mu_);
  if (!ended_) SendToAll(kReady);
  ELASTICDL_RETURN_IF_ERROR(AwaitAll(ready_, "ready", deadline));
  completed_ = running_;
  return absl::OkStatus();
}

absl::Status MemberWatch::AwaitAllInFirstCall(Deadline& deadline) {
  MutexLock lock(mu_);
  if (!ended_) SendToAll(kInFirstCall);
  return AwaitAll(in_first_call_, "in the first call", deadline);
}

absl::Status MemberWatch::AwaitAll(const std::set<int>& who, const char* what,
                                   Deadline& deadline) {
  const auto others = static_cast<size_t>(mesh_->size() - 1);
  while (!ended_ && who.size() < others) {
    if (deadline.Left() == absl::ZeroDuration()) {
      absl::Status late = absl::DeadlineExceededError(
          absl::StrCat("only ", who.size(), " of ", others, " others were ",
                       what, " in time"));
      EndLocked(late);
      return late;
    }
    ready_or_ended_.WaitFor(mu_, deadline.Left());
  }
  return mesh_->Check();
}

absl::Status MemberWatch::Enter() {
  MutexLock lock(mu_);
  ++running_;
  if (running_ > last_) {
    EndLocked(Blame(last_rank_, absl::AbortedError(absl::StrCat(
                                    "rank ", last_rank_, " left"))));
  }
  return mesh_->Check();
}

void MemberWatch::Complete() {
  MutexLock lock(mu_);
  completed_ = running_;
}

int MemberWatch::left_rank() {
  MutexLock lock(mu_);
  return last_ == std::numeric_limits<int64_t>::max() ? -1 : last_rank_;
}

void MemberWatch::Leave() {
  MutexLock lock(mu_);
  if (!ended_) SendToAll(completed_);
}

void MemberWatch::EndAfterOthers(Deadline& deadline) {
  MutexLock lock(mu_);
  const auto others = static_cast<size_t>(mesh_->size() - 1);
  while (!ended_ && gone_.size() < others &&
         deadline.Left() > absl::ZeroDuration()) {
    ready_or_ended_.WaitFor(mu_, deadline.Left());
  }
  EndLocked(absl::AbortedError("this member left"));
}

void MemberWatch::End(const absl::Status& why) {
  MutexLock lock(mu_);
  EndLocked(why);
}

void MemberWatch::SendToAll(int64_t message) {
  for (int rank = 0; rank < mesh_->size(); ++rank) {
    if (rank == mesh_->rank()) continue;
    // There are four messages at most, so there is room. Who is gone need not
    // know.
    [[maybe_unused]] const ssize_t sent =
        send(mesh_->socket(rank), &message, sizeof(message),
             MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void MemberWatch::EndLocked(const absl::Status& why) {
  if (ended_) return;
  ended_ = true;
  SendToAll(completed_);
  mesh_->Abort(why);
  for (Sleeper* const sleeper : sleepers_) sleeper->Wake();
  ready_or_ended_.NotifyAll();
}

void MemberWatch::Add(Sleeper* sleeper) {
  MutexLock lock(mu_);
  sleepers_.insert(sleeper);
}

void MemberWatch::Remove(Sleeper* sleeper) {
  MutexLock lock(mu_);
  sleepers_.erase(sleeper);
}

void MemberWatch::NoteLast(int rank, int64_t call) {
  if (call < last_) {
    last_ = call;
    last_rank_ = rank;
  }
  if (running_ > last_ && running_ > completed_) {
    EndLocked(Blame(rank, absl::AbortedError(absl::StrCat(
                              "rank ", rank, " left or broke the world"))));
  }
}

void MemberWatch::Lost(int rank, const std::string& why) {
  MutexLock lock(mu_);
  if (completed_ == 0 && ready_.count(rank) > 0) return NoteLast(rank, 1);
  EndLocked(Blame(
      rank, absl::AbortedError(absl::StrCat("rank ", mesh_->rank(),
                                            " lost rank ", rank, ": ", why))));
}

bool MemberWatch::HearOne(int rank) {
  int64_t message = 0;
  const ssize_t got =
      recv(mesh_->socket(rank), &message, sizeof(message), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got != sizeof(message)) {
    Lost(rank, got < 0 ? std::strerror(errno) : "it closed the connection");
    return false;
  }
  MutexLock lock(mu_);
  if (message != kReady && message != kInFirstCall) {
    NoteLast(rank, message);
    return false;
  }
  (message == kReady ? ready_ : in_first_call_).insert(rank);
  ready_or_ended_.NotifyAll();
  return true;
}

bool MemberWatch::IsGone(int rank) {
  MutexLock lock(mu_);
  return gone_.count(rank) > 0;
}

bool MemberWatch::Hear(std::vector<int>& ranks, int timeout_ms) {
  std::vector<pollfd> fds;
  fds.reserve(ranks.size());
  for (const int rank : ranks) fds.push_back({mesh_->socket(rank), POLLIN, 0});
  if (poll(fds.data(), fds.size(), timeout_ms) <= 0) return false;
  // A watch that is slow to get the processor.
  if (timeout_ms < 0) Failpoint("collective.watch").IgnoreError();
  MutexLock hearing(hearing_);
  for (size_t i = ranks.size(); i-- > 0;) {
    if (fds[i].revents == 0 || !mesh_->Check().ok()) continue;
    // Another thread may have read its last message.
    if (!IsGone(ranks[i])) {
      if (HearOne(ranks[i])) continue;
      MutexLock lock(mu_);
      gone_.insert(ranks[i]);
      ready_or_ended_.NotifyAll();
    }
    ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(i));
  }
  return true;
}

std::vector<int> MemberWatch::Others() {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh_->size(); ++rank) {
    if (rank != mesh_->rank() && !IsGone(rank)) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status MemberWatch::CheckNow() {
  std::vector<int> ranks = Others();
  while (!ranks.empty() && Check().ok() && Hear(ranks, 0)) {
  }
  return Check();
}

// Ends when the world has ended here, which shuts all connections, or when all
// others are gone.
void MemberWatch::Run() {
  std::vector<int> ranks = Others();
  while (!ranks.empty() && mesh_->Check().ok()) Hear(ranks, -1);
}

}  // namespace elasticdl::collective
