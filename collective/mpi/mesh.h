// A world whose data goes over MPI, and whose members watch each other over
// connections.
#pragma once

#include <memory>
#include <vector>

#include "core/mesh.h"
#include "mpi/mover.h"
#include "mpi/universe.h"
#include "tcp/member_watch.h"

namespace elasticdl::collective {

class MpiMesh final : public Mesh, private MemberWatch::Sleeper {
 public:
  // `mpi_ranks` by rank of the world, `tag` for all its messages. The universe
  // is shared with the process's other worlds, the watch with nobody but the
  // connector that made it.
  MpiMesh(int rank, std::shared_ptr<MpiUniverse> universe,
          std::shared_ptr<MemberWatch> watch, std::vector<int> mpi_ranks,
          int tag);
  ~MpiMesh() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // The first call begins with Greet.
  absl::Status Enter(Deadline& deadline) override;
  void Complete() override { watch_->Complete(); }
  absl::Status Move(std::vector<MeshSend> sends,
                    std::vector<MeshReceive> receives,
                    Deadline& deadline) override;
  absl::Status MoveInChunks(MeshSend send, const Incoming& incoming,
                            Deadline& deadline) override;
  void Abort(const absl::Status& why) override { watch_->End(why); }

 private:
  void Wake() override { universe_->thread().Wake(); }
  // Every member sends a message to every other one over MPI. After a death a
  // survivor may no longer receive anything, without an error; most likely the
  // dead process was writing into its queue in shared memory. A new world
  // follows each death, so this detects it. Not done while the world is formed,
  // because others may still need their MPI thread for the previous world.
  absl::Status Greet(Deadline& deadline);
  absl::Status Run(const std::vector<MeshSend>& sends,
                   const std::vector<Incoming>& receives, Deadline& deadline);

  const int rank_;
  const int size_;
  const std::shared_ptr<MpiUniverse> universe_;
  const std::shared_ptr<MemberWatch> watch_;
  const int tag_;
  std::unique_ptr<MpiMover> mover_;
  bool greeted_ = false;
};

}  // namespace elasticdl::collective
