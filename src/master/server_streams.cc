#include "server_streams.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"

namespace elasticdl::master {
namespace {

// A process that was killed is gone within this time of its stream.
constexpr absl::Duration kDyingTime = absl::Seconds(5);
constexpr char kJobIsOver[] = "the job is over";

}  // namespace

ServerStreams::ServerStreams(JobController& controller, WorkerPort& port,
                             const std::map<ConnectionId, int64_t>& workers)
    : controller_(controller),
      port_(port),
      workers_(workers),
      directory_(controller.num_servers()) {
  controller_.SetServers(directory_.addresses());
}

bool ServerStreams::OnMessage(absl::Time now, ConnectionId connection,
                              const v1::WorkerMessage& message) {
  if (workers_.count(connection) != 0) return false;
  if (message.has_server_hello()) {
    OnHello(now, connection, message.server_hello());
    return true;
  }
  // What a stream says that was replaced is stale.
  const std::optional<int> server = directory_.ServerOf(connection);
  if (server.has_value()) controller_.OnServerMessage(now, *server, message);
  return directory_.IsServer(connection);
}

bool ServerStreams::OnClosed(absl::Time now, ConnectionId connection,
                             const absl::Status& status) {
  if (!directory_.IsServer(connection)) return false;
  const std::optional<int> server = directory_.ServerOf(connection);
  if (server.has_value()) {
    LogInfo("server ", *server, " is away",
            status.ok() ? "" : absl::StrCat(": ", status.message()));
    controller_.OnServerDetached(*server);
    away_until_[*server] = now + kDyingTime;
  }
  if (directory_.OnClosed(connection)) TellAddresses();
  return true;
}

void ServerStreams::Send(int server, v1::MasterMessage message) {
  const auto connection = directory_.ConnectionOf(server);
  if (connection.has_value()) port_.Send({*connection}, std::move(message));
}

bool ServerStreams::Stop(int server) {
  const auto connection = directory_.ConnectionOf(server);
  if (connection.has_value()) SendStop({*connection}, kJobIsOver);
  return connection.has_value();
}

void ServerStreams::StopAll() {
  SendStop(directory_.connections(), kJobIsOver);
}

void ServerStreams::SendStop(const std::vector<ConnectionId>& connections,
                             const std::string& reason) {
  v1::MasterMessage message;
  message.mutable_stop()->set_reason(reason);
  port_.Send(connections, std::move(message));
}

void ServerStreams::SetCount(int num_servers) {
  if (num_servers == count()) return;
  for (int server = num_servers; server < count(); ++server) {
    const auto connection = directory_.ConnectionOf(server);
    if (!connection.has_value()) continue;
    SendStop({*connection}, "scaled away");
    controller_.OnServerDetached(server);
    away_until_.erase(server);
  }
  directory_.SetCount(num_servers);
  TellAddresses();
}

void ServerStreams::OnHello(absl::Time now, ConnectionId connection,
                            const v1::ServerHello& hello) {
  const auto change = directory_.OnHello(connection, hello);
  if (!change.ok()) {
    LogWarning("refused a parameter server: ", change.status().message());
    return port_.Close(connection, change.status());
  }
  if (change->replaced.has_value()) {
    controller_.OnServerDetached(hello.server());
    port_.Close(*change->replaced,
                absl::FailedPreconditionError(
                    absl::StrCat("server ", hello.server(), " came back")));
  }
  if (change->attached) {
    v1::MasterMessage message;
    v1::Welcome& welcome = *message.mutable_welcome();
    welcome.set_worker_id(hello.server());
    *welcome.mutable_job() = controller_.job();
    *welcome.mutable_servers() = directory_.addresses();
    port_.Send({connection}, std::move(message));
  }
  pids_[hello.server()] = hello.pid();
  away_until_.erase(hello.server());
  if (change->addresses) TellAddresses();
  if (hello.address().empty()) return;
  LogInfo("server ", hello.server(), " (pid ", hello.pid(), ") is at ",
          hello.address(), " with version ", hello.version());
  controller_.OnServerAttached(now, hello.server(), hello.version());
}

std::vector<ServerStreams::Hanging> ServerStreams::TakeHanging(absl::Time now) {
  std::vector<Hanging> hanging;
  for (auto it = away_until_.begin(); it != away_until_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    hanging.push_back({it->first, pids_[it->first]});
    it = away_until_.erase(it);
  }
  return hanging;
}

absl::Time ServerStreams::next_hanging() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [server, until] : away_until_) next = std::min(next, until);
  return next;
}

void ServerStreams::OnWorkerBack(ConnectionId connection) {
  v1::MasterMessage message;
  *message.mutable_servers() = directory_.addresses();
  port_.Send({connection}, std::move(message));
}

void ServerStreams::TellAddresses() {
  controller_.SetServers(directory_.addresses());
  // Servers fetch buckets from each other.
  std::vector<ConnectionId> connections = directory_.connections();
  for (const auto& [connection, id] : workers_) {
    connections.push_back(connection);
  }
  v1::MasterMessage message;
  *message.mutable_servers() = directory_.addresses();
  port_.Send(connections, std::move(message));
}

}  // namespace elasticdl::master
