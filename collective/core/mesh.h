// Moves bytes between one member of a world and the others. The algorithms on
// top of it are in mesh_communicator.h.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/deadline.h"

namespace elasticdl::collective {

struct MeshSend {
  int rank;
  const char* data;
  size_t bytes;
};
struct MeshReceive {
  int rank;
  char* data;
  size_t bytes;
};

// The data that goes around a ring, in the order in which it is sent and
// received. Both neighbours have the same pieces.
struct MeshFlow {
  struct Out {
    const char* data;
    size_t bytes;
    // The incoming piece that is passed on; -1: the data is there already.
    int after;
  };
  struct In {
    char* data;
    size_t bytes;
    // Adds to the data instead of replacing it.
    bool add;
  };
  int to;
  int from;
  std::vector<Out> out;
  std::vector<In> in;
  // Adds a chunk that came in to what is here.
  std::function<void(const char* chunk, char* own, size_t bytes)> sum;
  // Visited before each piece is sent.
  const char* failpoint;
};

// Both ends know how many bytes a message has. Operations are for one thread at
// a time, Abort is for any.
class Mesh {
 public:
  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begin and end of a collective call. Enter fails if the world has ended or a
  // member will not take part.
  virtual absl::Status Enter(Deadline& deadline) = 0;
  virtual void Complete() = 0;

  // Sends and receives all of it, in any order between peers. Any error ends
  // the world.
  virtual absl::Status Move(std::vector<MeshSend> sends,
                            std::vector<MeshReceive> receives,
                            Deadline& deadline) = 0;
  // Sends one array and receives another; `received` is called for the chunks
  // of the latter as they come, in order. `chunk` is valid during the call.
  struct Incoming {
    int rank;
    size_t bytes;
    std::function<void(const char* chunk, size_t offset, size_t bytes)>
        received;
  };
  virtual absl::Status MoveInChunks(MeshSend send, const Incoming& incoming,
                                    Deadline& deadline) = 0;

  // Sends and receives all pieces. What comes in is passed on chunk by chunk.
  // Only for a mesh that `HasFlow`.
  virtual bool HasFlow() const { return false; }
  virtual absl::Status RunFlow(const MeshFlow& flow, Deadline& deadline);

  // Ends the world, which the others notice at once.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace elasticdl::collective
