// How many records of each worker are in the model.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "elasticdl/rendezvous/elastic_loop.h"
#include "elasticdl/v1/world.pb.h"

namespace elasticdl::worker {

// Thread-compatible; pure. Counts over each worker's whole life: by rank for
// the members of the current world, of which the last round may not be settled,
// and by id for other workers that the master still asks about.
class RecordTotals {
 public:
  using Proto = google::protobuf::RepeatedPtrField<v1::RecordTotal>;

  // Starts to count in a world whose model contains `totals`.
  void EnterWorld(const Proto& totals, const rendezvous::World& world);
  // The counts stay, by id.
  void LeaveWorld();
  // Outside a world: the model is another one.
  void Clear() { others_.clear(); }

  // A round of the world; `records` by rank.
  void AddRound(const std::vector<int64_t>& records, bool settled);

  // Outside a world.
  int64_t Of(int64_t worker_id) const;
  Proto All() const;
  // In a world: all that is known, and what a round that has not been added
  // brings (`records` by rank; empty = nothing).
  void List(const std::vector<int64_t>& records,
            std::vector<std::pair<int64_t, int64_t>>& list) const;
  // In a world: the members, without a round that is not settled.
  Proto Settled() const;

 private:
  std::vector<int64_t> members_;
  std::vector<int64_t> totals_;
  std::vector<int64_t> unsettled_;
  std::map<int64_t, int64_t> others_;
};

}  // namespace elasticdl::worker
