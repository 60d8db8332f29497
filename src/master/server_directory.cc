#include "server_directory.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::master {

void ServerDirectory::SetCount(int num_servers) {
  while (count() < num_servers) addresses_.add_addresses();
  while (count() > num_servers) {
    connections_.erase(count() - 1);
    addresses_.mutable_addresses()->RemoveLast();
  }
}

absl::StatusOr<ServerDirectory::Change> ServerDirectory::OnHello(
    ConnectionId connection, const v1::ServerHello& hello) {
  known_.insert(connection);
  const int server = hello.server();
  if (server < 0 || server >= count()) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no parameter server ", server,
                     " in this job, which has ", count()));
  }
  const std::optional<int> before = ServerOf(connection);
  if (before.has_value() && *before != server) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter server ", *before, " calls itself ", server));
  }
  Change change;
  const std::optional<ConnectionId> old = ConnectionOf(server);
  change.attached = old != connection;
  if (change.attached) change.replaced = old;
  connections_[server] = connection;
  change.addresses = !backups_ && SetAddress(server, hello.address());
  return change;
}

bool ServerDirectory::OnClosed(ConnectionId connection) {
  known_.erase(connection);
  const std::optional<int> server = ServerOf(connection);
  if (!server.has_value()) return false;
  connections_.erase(*server);
  return !backups_ && SetAddress(*server, "");
}

std::optional<int> ServerDirectory::ServerOf(ConnectionId connection) const {
  for (const auto& [server, own] : connections_) {
    if (own == connection) return server;
  }
  return std::nullopt;
}

std::optional<rendezvous::ConnectionId> ServerDirectory::ConnectionOf(
    int server) const {
  const auto found = connections_.find(server);
  if (found == connections_.end()) return std::nullopt;
  return found->second;
}

std::vector<rendezvous::ConnectionId> ServerDirectory::connections() const {
  std::vector<ConnectionId> connections;
  for (const auto& [server, own] : connections_) connections.push_back(own);
  return connections;
}

bool ServerDirectory::SetAddress(int server, const std::string& address) {
  std::string& own = *addresses_.mutable_addresses(server);
  if (own == address) return false;
  own = address;
  return true;
}

}  // namespace elasticdl::master
