#include "hierarchical/communicator.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {

HierarchicalCommunicator::HierarchicalCommunicator(const WorldSpec& world,
                                                   HostGroups groups,
                                                   Parts parts)
    : rank_(world.rank),
      size_(world.size()),
      groups_(std::move(groups)),
      parts_(std::move(parts)) {
  if (!leads() || parts_.wait_for_abort == nullptr) return;
  watcher_ = Thread("edl-leader", [this] {
    parts_.wait_for_abort();
    // An abort during destruction no longer matters.
    parts_.leaders->Abort(
        "a member on the host of this leader ended the world");
  });
}

HierarchicalCommunicator::~HierarchicalCommunicator() {
  if (parts_.stop_waiting != nullptr) parts_.stop_waiting();
  watcher_.Join();
}

void HierarchicalCommunicator::Abort(const std::string& reason) {
  {
    MutexLock lock(mu_);
    if (aborted_.ok()) aborted_ = absl::AbortedError(reason);
  }
  parts_.local->Abort(reason);
  if (leads()) parts_.leaders->Abort(reason);
}

// Why this member itself ended the world, if it did.
absl::Status HierarchicalCommunicator::Own() {
  MutexLock lock(mu_);
  return aborted_;
}

absl::Status HierarchicalCommunicator::RunSteps(
    const char* failpoint, absl::Duration timeout,
    const std::vector<Step>& steps) {
  absl::Status own = Own();
  if (!own.ok()) return MarkData(/*left_alone=*/true, own);
  Deadline deadline(timeout);
  for (const Step& step : steps) {
    ELASTICDL_RETURN_IF_ERROR(Failpoint(failpoint));
    const absl::Status status = step(deadline.Left());
    if (status.ok()) continue;
    own = Own();
    if (own.ok()) {
      // The others, which fail in their own step, add the same text.
      Abort(std::string(status.message()));
      own = InAPart(status);
    }
    // Later steps follow one that has written.
    return MarkData(&step == &steps.front() && LeftDataAlone(status), own);
  }
  return absl::OkStatus();
}

HierarchicalCommunicator::Step HierarchicalCommunicator::AmongLeaders(
    std::function<absl::Status(Communicator&, absl::Duration)> operation) {
  return [this, operation = std::move(operation)](absl::Duration timeout) {
    return leads() ? operation(*parts_.leaders, timeout) : absl::OkStatus();
  };
}

absl::Status HierarchicalCommunicator::Reduce(const char* failpoint, void* data,
                                              size_t count, DataType type,
                                              absl::Duration timeout) {
  const size_t bytes = count * SizeOf(type);
  return RunSteps(
      failpoint, timeout,
      {[&](absl::Duration left) {
         return parts_.local->AllReduce(data, count, type, left);
       },
       AmongLeaders([&](Communicator& leaders, absl::Duration left) {
         return leaders.AllReduce(data, count, type, left);
       }),
       [&](absl::Duration left) {
         return parts_.local->Broadcast(data, bytes, 0, left);
       }});
}

absl::Status HierarchicalCommunicator::AllReduce(void* data, size_t count,
                                                 DataType type,
                                                 absl::Duration timeout) {
  return Reduce("collective.all_reduce", data, count, type, timeout);
}

absl::Status HierarchicalCommunicator::Broadcast(void* data, size_t bytes,
                                                 int root,
                                                 absl::Duration timeout) {
  if (root < 0 || root >= size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size_));
  }
  const int host = groups_.host_of[root];
  const bool here = groups_.host_of[rank_] == host;
  return RunSteps(
      "collective.broadcast", timeout,
      {[&](absl::Duration left) {
         if (!here) return parts_.local->Barrier(left);
         return parts_.local->Broadcast(data, bytes, groups_.place_of[root],
                                        left);
       },
       AmongLeaders([&](Communicator& leaders, absl::Duration left) {
         return leaders.Broadcast(data, bytes, host, left);
       }),
       [&](absl::Duration left) {
         if (here) return parts_.local->Barrier(left);
         return parts_.local->Broadcast(data, bytes, 0, left);
       }});
}

// Hosts with fewer members send some padding.
absl::Status HierarchicalCommunicator::AllGather(const void* in, void* out,
                                                 size_t bytes,
                                                 absl::Duration timeout) {
  const size_t per_host = bytes * static_cast<size_t>(groups_.largest());
  std::vector<char> own(per_host);
  std::vector<char> all(per_host * static_cast<size_t>(groups_.num_hosts()));
  ELASTICDL_RETURN_IF_ERROR(RunSteps(
      "collective.all_gather", timeout,
      {[&](absl::Duration left) {
         return parts_.local->AllGather(in, own.data(), bytes, left);
       },
       AmongLeaders([&](Communicator& leaders, absl::Duration left) {
         return leaders.AllGather(own.data(), all.data(), per_host, left);
       }),
       [&](absl::Duration left) {
         return parts_.local->Broadcast(all.data(), all.size(), 0, left);
       }}));
  for (int rank = 0; bytes > 0 && rank < size_; ++rank) {
    const size_t offset =
        static_cast<size_t>(groups_.host_of[rank]) * per_host +
        static_cast<size_t>(groups_.place_of[rank]) * bytes;
    std::memcpy(static_cast<char*>(out) + static_cast<size_t>(rank) * bytes,
                all.data() + offset, bytes);
  }
  return absl::OkStatus();
}

// Sums all blocks. Leaving some out would save little, because the blocks of a
// host's members must meet at its leader anyway.
absl::Status HierarchicalCommunicator::ReduceScatter(void* data, size_t count,
                                                     DataType type,
                                                     absl::Duration timeout) {
  return Reduce("collective.reduce_scatter", data,
                count * static_cast<size_t>(size_), type, timeout);
}

absl::Status HierarchicalCommunicator::Barrier(absl::Duration timeout) {
  const auto within = [&](absl::Duration left) {
    return parts_.local->Barrier(left);
  };
  return RunSteps(
      "collective.barrier", timeout,
      {within, AmongLeaders([](Communicator& leaders, absl::Duration left) {
         return leaders.Barrier(left);
       }),
       within});
}

}  // namespace elasticdl::collective
