// Connections to all other members of a world; moves data over several of them
// at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/deadline.h"
#include "core/mesh.h"
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

class TcpMesh final : public Mesh {
 public:
  // `sockets` by rank, non-blocking; that of this rank is empty.
  TcpMesh(int rank, std::vector<Fd> sockets);
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }
  // For poll(), to notice its end. -1 for this rank.
  int socket(int rank) const { return sockets_[rank].get(); }

  // ABORTED with the reason once the world has ended.
  absl::Status Check() { return abort_.Check(); }
  absl::Status Enter(Deadline&) override { return Check(); }
  // Whoever reads the last bytes of a connection also sees that it is closed,
  // so calls need not be counted.
  void Complete() override {}
  absl::Status Move(std::vector<MeshSend> sends,
                    std::vector<MeshReceive> receives,
                    Deadline& deadline) override;
  absl::Status MoveInChunks(MeshSend send, const Incoming& incoming,
                            Deadline& deadline) override;
  bool HasFlow() const override { return true; }
  absl::Status RunFlow(const MeshFlow& flow, Deadline& deadline) override;
  // Closes all connections.
  void Abort(const absl::Status& why) override;

 private:
  // How far a flow has come: pieces that are done, and bytes of the next.
  struct FlowState {
    size_t out = 0;
    size_t sent = 0;
    size_t in = 0;
    size_t received = 0;
    // Of the chunk that is added next.
    size_t filled = 0;
  };
  // What can be moved now. True: something was. `blocked`: the next peer takes
  // no more.
  absl::StatusOr<bool> SendFlow(const MeshFlow& flow, FlowState& state,
                                bool& blocked);
  absl::StatusOr<bool> ReceiveFlow(const MeshFlow& flow, FlowState& state);
  // The number of bytes moved; 0 if it would block.
  absl::StatusOr<size_t> SendSome(MeshSend& send);
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
  // Where MoveInChunks receives.
  std::vector<char> chunk_;
};

}  // namespace elasticdl::collective
