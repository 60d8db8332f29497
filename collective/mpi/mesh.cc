#include "mpi/mesh.h"

#include <cstring>
#include <utility>

namespace elasticdl::collective {

MpiMesh::MpiMesh(int rank, std::shared_ptr<MpiUniverse> universe,
                 std::shared_ptr<MemberWatch> watch, std::vector<int> mpi_ranks,
                 int tag)
    : rank_(rank),
      size_(static_cast<int>(mpi_ranks.size())),
      universe_(std::move(universe)),
      watch_(std::move(watch)),
      mover_(std::make_unique<MpiMover>(
          MpiMover::Options{&universe_->table(), &universe_->thread(),
                            std::move(mpi_ranks), tag})) {
  watch_->Add(this);
}

MpiMesh::~MpiMesh() {
  watch_->End(absl::AbortedError("this member left"));
  watch_->Remove(this);
}

absl::Status MpiMesh::Run(const std::vector<MeshSend>& sends,
                          const std::vector<Incoming>& receives,
                          Deadline& deadline) {
  const auto over = [this] { return !watch_->Check().ok(); };
  if (over()) return watch_->Check();
  // Both threads read it: start it now.
  deadline.nanos();
  absl::Status moved;
  const absl::Status ran = universe_->thread().Run(
      [&] { moved = mover_->Move(sends, receives, deadline, over); }, deadline,
      over);
  if (absl::IsUnavailable(ran)) {
    // MPI may come back and use it.
    [[maybe_unused]] MpiMover* const kept = mover_.release();
    universe_->Lose(ran);
    watch_->End(absl::AbortedError(ran.message()));
    return watch_->Check();
  }
  const absl::Status& status = ran.ok() ? moved : ran;
  if (status.ok()) {
    universe_->NoteSuccess();
    return status;
  }
  // What ended the world first explains it best.
  if (over()) return watch_->Check();
  universe_->NoteFailure(status);
  watch_->End(status);
  return status;
}

absl::Status MpiMesh::Move(std::vector<MeshSend> sends,
                           std::vector<MeshReceive> receives,
                           Deadline& deadline) {
  std::vector<Incoming> incoming;
  incoming.reserve(receives.size());
  for (const MeshReceive& receive : receives) {
    incoming.push_back(
        {receive.rank, receive.bytes,
         [to = receive.data](const char* chunk, size_t offset, size_t bytes) {
           std::memcpy(to + offset, chunk, bytes);
         }});
  }
  return Run(sends, incoming, deadline);
}

absl::Status MpiMesh::MoveInChunks(MeshSend send, const Incoming& incoming,
                                   Deadline& deadline) {
  return Run({send}, {incoming}, deadline);
}

}  // namespace elasticdl::collective
