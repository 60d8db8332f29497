// The attached workers, by stream and by id.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "elasticdl/rendezvous/stream_server.h"

namespace elasticdl::master {

using rendezvous::ConnectionId;

// One worker, as its messages have described it.
struct Worker {
  int64_t id = 0;
  int64_t pid = 0;
  bool ready = false;
  // It has a GPU and NCCL.
  bool nccl = false;
  // Waits for EvaluationDone.
  bool waiting = false;
  // The world in which it was told that training is over.
  int64_t training_done_in = 0;
  // With parameter servers: it was told that training is over, and it has
  // reported its last minibatch.
  bool training_done_sent = false;
  bool idle = false;
  // NoMoreTasks was its last word about training tasks.
  bool no_more_sent = false;
  // It waits for one more task, however many it is thought to hold: what it has
  // used may not be known here yet.
  bool starving = false;
  bool stop_sent = false;
  // It came back from the master before this one.
  bool resumed = false;
  bool leaving = false;
  std::string leaving_reason;
  // Its pod is deleted on purpose, for this reason; empty = it is not.
  std::string removed_reason;
};

// Thread-compatible. A worker is *attached* while it has a stream, and
// *reachable* while the master also sends it messages: a released worker keeps
// its stream until it closes it, but is no longer a worker of the job.
class WorkerRegistry {
 public:
  using Workers = std::map<ConnectionId, Worker>;

  // The id that the worker gets: `wanted`, unless that is negative or was ever
  // used. A worker that attaches again keeps its id.
  int64_t TakeId(int64_t wanted, bool comes_back);
  // Of an earlier run of the master.
  void NoteUsedId(int64_t id);
  // Skips `count` ids: an earlier master may have assigned them unrecorded.
  void SkipIds(int64_t count) { next_id_ += count; }
  // No id from this one on was ever used.
  int64_t next_id() const { return next_id_; }
  const std::set<int64_t>& used_ids() const { return used_ids_; }

  // The worker of its id becomes reachable by this stream.
  void Add(ConnectionId connection, const Worker& worker);
  // Its stream is closed, or its messages are ignored from now on.
  void Remove(ConnectionId connection);
  // It gets no more messages; it closes its stream by itself.
  void Release(int64_t id) { connection_of_.erase(id); }

  // Null when there is none.
  Worker* Find(ConnectionId connection);
  // Null when it is not reachable.
  Worker* FindById(int64_t id);
  // 0 when it is not reachable.
  ConnectionId ConnectionOf(int64_t id) const;
  bool IsReachable(int64_t id) const { return connection_of_.count(id) != 0; }
  bool IsAttached(int64_t id) const;
  bool empty() const { return workers_.empty(); }
  size_t size() const { return workers_.size(); }
  // Ready, and not about to leave.
  int num_ready() const;
  // Looks at few of them.
  bool any_ready() const;

  // Those of `ids` that are reachable, in that order.
  std::vector<ConnectionId> Connections(const std::vector<int64_t>& ids) const;
  // Of all that are ready.
  std::vector<ConnectionId> ReadyConnections() const;
  // All that are attached, by stream.
  Workers& workers() { return workers_; }
  const Workers& workers() const { return workers_; }

 private:
  Workers workers_;
  std::unordered_map<int64_t, ConnectionId> connection_of_;
  std::set<int64_t> used_ids_;
  int64_t next_id_ = 0;
};

}  // namespace elasticdl::master
