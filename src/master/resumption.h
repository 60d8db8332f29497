// How a restarted master waits for the workers of the previous one, which have
// kept model and tasks (docs/design/0005-master-restart.md).
//
//   a member of the last world   when the wait ends
//   ---------------------------  ----------------------------------------------
//   is back, and ready           is in the next world, with its model
//   has a stream, but ends a     waited for until step_deadline; then given up
//     long step
//   has no stream                given up after `deadline`
//   its pod has ended            given up at once
//
// The wait is over when each of them is back or given up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/rendezvous/membership.h"

namespace elasticdl::master {

// Thread-compatible. `reachable` is always the same question: does the worker
// have a stream now?
class Resumption {
 public:
  using Reachable = std::function<bool(int64_t id)>;
  struct Back {
    std::string host;
    // Of its model.
    int64_t step = 0;
  };
  // The result of the wait.
  struct Outcome {
    // Members of the last world, by rank.
    std::vector<int64_t> members;
    // Workers that attached again with a model; not only members of that world.
    std::map<int64_t, Back> back;
    // Others that got ready meanwhile.
    std::vector<rendezvous::WorldMember> joiners;
  };

  // Workers of the master before that may still come back.
  const std::set<int64_t>& awaited() const { return awaited_; }
  void Await(int64_t id) { awaited_.insert(id); }
  void AwaitNobody() { awaited_.clear(); }
  // The worker has attached, or will not attach any more; true: it was awaited.
  // A worker may come back once.
  bool Take(int64_t id) { return awaited_.erase(id) != 0; }

  void Begin(const std::vector<int64_t>& members, absl::Time deadline,
             absl::Time step_deadline);
  bool waiting() const { return wait_.has_value(); }
  const std::vector<int64_t>& members() const { return wait_->outcome.members; }
  absl::Time deadline() const {
    return waiting() ? wait_->deadline : absl::InfiniteFuture();
  }

  // While waiting: who is ready, with a model and without.
  void CameBack(int64_t id, const std::string& host, int64_t step);
  void Joined(int64_t id, const std::string& host);
  bool Complete(const Reachable& reachable) const;
  // True when the wait is over; else the deadline has moved.
  bool OnDeadline(absl::Time now, const Reachable& reachable);
  Outcome End();

 private:
  struct Wait {
    absl::Time deadline;
    absl::Time step_deadline;
    Outcome outcome;
  };

  std::set<int64_t> awaited_;
  std::optional<Wait> wait_;
};

}  // namespace elasticdl::master
