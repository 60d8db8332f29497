// What moves bytes between one member of a world and the others. The algorithms
// on top of it are in mesh_communicator.h.
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

  // Ends the world, which the others notice at once.
  virtual void Abort(const absl::Status& why) = 0;
};

}  // namespace elasticdl::collective
