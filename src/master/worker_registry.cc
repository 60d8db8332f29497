#include "worker_registry.h"

#include <algorithm>

namespace elasticdl::master {

int64_t WorkerRegistry::TakeId(int64_t wanted, bool comes_back) {
  // Records are counted over the life of a worker: a new process is a new one.
  const bool taken = wanted < 0 || used_ids_.count(wanted) != 0;
  const int64_t id = !comes_back && taken ? next_id_ : wanted;
  NoteUsedId(id);
  return id;
}

void WorkerRegistry::NoteUsedId(int64_t id) {
  used_ids_.insert(id);
  next_id_ = std::max(next_id_, id + 1);
}

void WorkerRegistry::Add(ConnectionId connection, const Worker& worker) {
  connection_of_[worker.id] = connection;
  workers_[connection] = worker;
}

void WorkerRegistry::Remove(ConnectionId connection) {
  const auto found = workers_.find(connection);
  if (found == workers_.end()) return;
  // The id may be on a newer stream.
  const auto known = connection_of_.find(found->second.id);
  if (known != connection_of_.end() && known->second == connection) {
    connection_of_.erase(known);
  }
  workers_.erase(found);
}

Worker* WorkerRegistry::Find(ConnectionId connection) {
  const auto found = workers_.find(connection);
  return found == workers_.end() ? nullptr : &found->second;
}

Worker* WorkerRegistry::FindById(int64_t id) {
  const auto found = connection_of_.find(id);
  return found == connection_of_.end() ? nullptr : Find(found->second);
}

ConnectionId WorkerRegistry::ConnectionOf(int64_t id) const {
  const auto found = connection_of_.find(id);
  return found == connection_of_.end() ? 0 : found->second;
}

bool WorkerRegistry::IsAttached(int64_t id) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [id](const auto& entry) { return entry.second.id == id; });
}

namespace {

bool IsReady(const std::pair<const ConnectionId, Worker>& entry) {
  return entry.second.ready && !entry.second.leaving;
}

}  // namespace

int WorkerRegistry::num_ready() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), IsReady));
}

bool WorkerRegistry::any_ready() const {
  return std::any_of(workers_.begin(), workers_.end(), IsReady);
}

std::vector<ConnectionId> WorkerRegistry::Connections(
    const std::vector<int64_t>& ids) const {
  std::vector<ConnectionId> connections;
  connections.reserve(ids.size());
  for (const int64_t id : ids) {
    const auto found = connection_of_.find(id);
    if (found != connection_of_.end()) connections.push_back(found->second);
  }
  return connections;
}

std::vector<ConnectionId> WorkerRegistry::ReadyConnections() const {
  std::vector<ConnectionId> ready;
  for (const auto& [connection, worker] : workers_) {
    if (worker.ready) ready.push_back(connection);
  }
  return ready;
}

}  // namespace elasticdl::master
