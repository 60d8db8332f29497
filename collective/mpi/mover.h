// Moves the messages of one world over MPI.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/deadline.h"
#include "core/mesh.h"
#include "mpi/plugin.h"
#include "mpi/thread.h"

namespace elasticdl::collective {

// Messages are cut into chunks, which are copied to and from buffers of the
// mover, because MPI may use a buffer long after the world has broken. A buffer
// whose request has not ended is never freed. Runs on the MPI thread.
class MpiMover {
 public:
  struct Options {
    const ElasticdlMpiTable* table = nullptr;
    MpiThread* thread = nullptr;
    // MPI's ranks, by rank of the world.
    std::vector<int> mpi_ranks;
    int tag = 0;
  };
  explicit MpiMover(Options options);
  ~MpiMover();
  MpiMover(const MpiMover&) = delete;
  MpiMover& operator=(const MpiMover&) = delete;

  // Sends and receives all of it. CANCELLED when `over` becomes true, ABORTED
  // by MPI's errors, DEADLINE_EXCEEDED. After an error nothing can be moved any
  // more.
  absl::Status Move(const std::vector<MeshSend>& sends,
                    const std::vector<Mesh::Incoming>& receives,
                    Deadline& deadline, const std::function<bool()>& over);

 private:
  struct Buffer {
    std::unique_ptr<char[]> data;
    size_t capacity = 0;
    // Of the request.
    bool sends = false;
    bool pending = false;
    int rank = 0;
    size_t bytes = 0;
  };
  // A message that is being moved.
  struct Message {
    int rank;
    size_t bytes;
    const char* data;                // of a send
    const Mesh::Incoming* incoming;  // of a receive
    size_t started = 0;
    size_t done = 0;
    // In the order of the chunks.
    std::deque<Buffer*> chunks = {};
  };

  bool IsMoving() const;
  absl::Status StartChunks(Message& message);
  absl::Status StartChunk(Message& message);
  absl::Status Poll(bool& moved);
  // Hands over the chunks at the front that have come.
  void Finish(Message& message);
  Buffer* TakeBuffer(size_t bytes);
  absl::Status Failed(int rank, int error) const;
  absl::Status Late() const;

  const Options options_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> free_;
  std::vector<Message> messages_;
  // Of the pending buffers, with their handles and room for the answer.
  std::vector<Buffer*> pending_;
  std::vector<uint64_t> handles_;
  std::vector<ElasticdlMpiEnded> ended_;
};

}  // namespace elasticdl::collective
