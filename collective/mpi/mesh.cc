#include "mpi/mesh.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/blame.h"
#include "elasticdl/common/status.h"
namespace elasticdl::collective {
namespace {

// All members are there, so their first messages take milliseconds.
constexpr absl::Duration kGreetTimeout = absl::Seconds(5);

}  // namespace

MpiMesh::MpiMesh(int rank, std::shared_ptr<MpiUniverse> universe,
                 std::shared_ptr<MemberWatch> watch, std::vector<int> mpi_ranks,
                 int tag)
    : rank_(rank),
      size_(static_cast<int>(mpi_ranks.size())),
      universe_(std::move(universe)),
      watch_(std::move(watch)),
      tag_(tag),
      mover_(std::make_unique<MpiMover>(
          MpiMover::Options{&universe_->table(), &universe_->thread(),
                            std::move(mpi_ranks), tag})) {
  watch_->Add(this);
}

MpiMesh::~MpiMesh() {
  watch_->End(absl::AbortedError("this member left"));
  watch_->Remove(this);
}

absl::Status MpiMesh::Enter(Deadline& deadline) {
  ELASTICDL_RETURN_IF_ERROR(watch_->Enter());
  if (greeted_) return absl::OkStatus();
  greeted_ = true;
  ELASTICDL_RETURN_IF_ERROR(watch_->AwaitAllInFirstCall(deadline));
  return Greet(deadline);
}

absl::Status MpiMesh::Greet(Deadline& deadline) {
  // Of this world, of this member.
  const int32_t own[] = {tag_, rank_};
  std::vector<std::array<int32_t, 2>> heard(static_cast<size_t>(size_));
  std::vector<MeshSend> sends;
  std::vector<MeshReceive> receives;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    sends.push_back({rank, reinterpret_cast<const char*>(own), sizeof(own)});
    receives.push_back(
        {rank, reinterpret_cast<char*>(heard[rank].data()), sizeof(own)});
  }
  Deadline soon(std::min(kGreetTimeout, deadline.Left()));
  const absl::Status status = Move(std::move(sends), std::move(receives), soon);
  if (absl::IsDeadlineExceeded(status) &&
      deadline.Left() > absl::ZeroDuration()) {
    universe_->Lose(absl::UnavailableError(
        "MPI no longer delivers messages; continuing without MPI"));
    return AsAborted(status);
  }
  ELASTICDL_RETURN_IF_ERROR(status);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || heard[rank] == std::array<int32_t, 2>{tag_, rank}) {
      continue;
    }
    watch_->End(Blame(rank, absl::AbortedError(absl::StrCat(
                                "rank ", rank, " is not at its MPI rank"))));
    return watch_->Check();
  }
  return absl::OkStatus();
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
  // What ended the world first explains it best. UCX may tell of a death before
  // the watch has read of it.
  ELASTICDL_RETURN_IF_ERROR(watch_->CheckNow());
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
