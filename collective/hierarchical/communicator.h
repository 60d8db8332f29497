// Collectives for several hosts with several members each: within each host,
// then between one leader per host, then within each host again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "hierarchical/host_groups.h"

namespace elasticdl::collective {

// When one of the two worlds ends, it ends the other, so that all hosts notice.
// Every call returns only after all members have entered it.
class HierarchicalCommunicator final : public Communicator {
 public:
  struct Parts {
    // The members on this host; a world of one if this is the only one.
    std::unique_ptr<Communicator> local;
    // Null if this member is not a leader.
    std::unique_ptr<Communicator> leaders;
    // Waits until `local` is aborted, and ends that wait. Empty if this member
    // is alone in it.
    std::function<void()> wait_for_abort;
    std::function<void()> stop_waiting;
  };
  HierarchicalCommunicator(const WorldSpec& world, HostGroups groups,
                           Parts parts);
  ~HierarchicalCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration timeout) override;
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration timeout) override;
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration timeout) override;
  absl::Status ReduceScatter(void* data, size_t count, DataType type,
                             absl::Duration timeout) override;
  absl::Status Barrier(absl::Duration timeout) override;
  void Abort(const std::string& reason) override;

 private:
  bool leads() const { return parts_.leaders != nullptr; }
  // Runs the steps of an operation in order; an error ends both worlds.
  using Step = std::function<absl::Status(absl::Duration timeout)>;
  absl::Status RunSteps(const char* failpoint, absl::Duration timeout,
                        const std::vector<Step>& steps);
  Step AmongLeaders(std::function<absl::Status(Communicator&, absl::Duration)>);
  absl::Status Reduce(const char* failpoint, void* data, size_t count,
                      DataType type, absl::Duration timeout);
  absl::Status Own();

  const int rank_;
  const int size_;
  const HostGroups groups_;
  const Parts parts_;

  Mutex mu_;
  absl::Status aborted_ ABSL_GUARDED_BY(mu_);
  // Leaders only: passes an abort within the host on to the other hosts.
  Thread watcher_;
};

}  // namespace elasticdl::collective
