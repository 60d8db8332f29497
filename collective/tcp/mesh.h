// Connections to all other members of a world; moves data over several of them
// at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/deadline.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::collective {

// An abort that wakes threads in poll(). Thread-safe.
class AbortSignal {
 public:
  AbortSignal();
  // The first reason is kept.
  void Raise(const absl::Status& why);
  bool raised() const { return raised_.load(); }
  // Once raised: ABORTED with the reason and its blame.
  absl::Status Check();
  // Readable once raised.
  int fd() const { return event_.get(); }

 private:
  const Fd event_;
  std::atomic<bool> raised_{false};
  Mutex mu_;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

struct TcpSend {
  int rank;
  const char* data;
  size_t bytes;
};
struct TcpReceive {
  int rank;
  char* data;
  size_t bytes;
};

// Move is for one thread at a time, Abort for any.
class TcpMesh {
 public:
  // `sockets` by rank, non-blocking; that of this rank is empty.
  TcpMesh(int rank, std::vector<Fd> sockets);
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(sockets_.size()); }
  // For poll(), to notice its end. -1 for this rank.
  int socket(int rank) const { return sockets_[rank].get(); }

  absl::Status Check() { return abort_.Check(); }
  // Sends and receives all of it, in any order between peers. Any error ends
  // the world.
  absl::Status Move(std::vector<TcpSend> sends,
                    std::vector<TcpReceive> receives, Deadline& deadline);
  // Sends one array and receives another; `received` is called for the chunks
  // of the latter as they come, in order, each in `buffer` of `buffer_bytes`.
  struct Incoming {
    int rank;
    size_t bytes;
    char* buffer;
    size_t buffer_bytes;
    std::function<void(size_t offset, size_t bytes)> received;
  };
  absl::Status MoveInChunks(TcpSend send, const Incoming& incoming,
                            Deadline& deadline);

  // Closes all connections, which the others notice at once.
  void Abort(const absl::Status& why);

 private:
  // The number of bytes moved; 0 if it would block.
  absl::StatusOr<size_t> SendSome(TcpSend& send);
  absl::StatusOr<size_t> ReceiveSome(int rank, char* to, size_t bytes);
  struct Awaited {
    int rank;
    short events;
  };
  absl::Status WaitFor(const std::vector<Awaited>& awaited, Deadline& deadline);
  // Ends the world with an error of the connection to `rank`.
  absl::Status Broken(int rank, const std::string& what);
  absl::Status EndWith(absl::Status status);

  const int rank_;
  const std::vector<Fd> sockets_;
  AbortSignal abort_;
};

}  // namespace elasticdl::collective
