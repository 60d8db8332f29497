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
      directory_(controller.num_servers(), controller.job().ps_backup()) {
  controller_.SetServers(directory_.addresses());
  if (!controller.job().ps_backup() || controller.num_servers() == 0) return;
  ServerBackups::Options options;
  options.servers = controller.num_servers();
  options.fits = [this](int part, int64_t version) {
    return controller_.ServerVersionFits(part, version);
  };
  backups_ = std::make_unique<ServerBackups>(std::move(options));
}

void ServerStreams::Resume(absl::Time now) {
  if (backups_ == nullptr) return;
  for (const auto& [part, record] : controller_.parts()) {
    backups_->Replay(record);
  }
  backups_->Resume(now);
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
  if (server.has_value()) OnServerMessage(now, *server, message);
  return directory_.IsServer(connection);
}

void ServerStreams::OnServerMessage(absl::Time now, int server,
                                    const v1::WorkerMessage& message) {
  if (message.has_telemetry()) {
    return controller_.OnServerTelemetry(now, server, message.telemetry());
  }
  if (backups_ == nullptr) {
    return controller_.OnServerMessage(now, server, message);
  }
  if (message.has_part_state()) {
    Execute(now, backups_->OnState(now, server, message.part_state()));
  }
  const int part = message.has_server_moved()
                       ? message.server_moved().part()
                       : message.server_committed().part();
  if ((message.has_server_committed() || message.has_server_moved()) &&
      part >= 0 && part < backups_->parts() &&
      backups_->PrimaryOf(part) == server) {
    controller_.OnServerMessage(now, part, message);
  }
}

void ServerStreams::Execute(absl::Time now,
                            const ServerBackups::Decisions& decisions) {
  // Servers go one after the other; nobody needs to take over from them.
  if (controller_.ending()) return;
  for (const v1::PsPartRecord& record : decisions.records) {
    controller_.RecordPart(record);
  }
  bool moved = false;
  for (const int part : decisions.away) {
    controller_.OnServerDetached(part);
    moved |= directory_.SetAddress(part, "");
  }
  for (const int server : decisions.hosting) {
    const auto connection = directory_.ConnectionOf(server);
    if (!connection.has_value()) continue;
    v1::MasterMessage message;
    FillHosting(server, *message.mutable_hosting());
    port_.Send({*connection}, std::move(message));
  }
  for (const auto& send : decisions.sends) {
    const auto connection = directory_.ConnectionOf(send.server);
    if (!connection.has_value()) continue;
    v1::MasterMessage message;
    *message.mutable_assignment() = send.assignment;
    port_.Send({*connection}, std::move(message));
  }
  for (const auto& serving : decisions.serving) {
    LogInfo("part ", serving.part, " of the model is at ", serving.address,
            " with version ", serving.version);
    moved |= directory_.SetAddress(serving.part, serving.address);
  }
  if (moved) TellAddresses();
  for (const PartChange& change : decisions.changes) {
    controller_.OnPartChange(change);
  }
  for (const auto& serving : decisions.serving) {
    controller_.OnServerAttached(now, serving.part, serving.version);
  }
  if (decisions.failure.has_value()) {
    controller_.Fail(now, *decisions.failure);
  }
}

void ServerStreams::FillHosting(int server, v1::PsHosting& hosting) const {
  for (const int part : backups_->PartsOn(server)) hosting.add_parts(part);
}

bool ServerStreams::OnClosed(absl::Time now, ConnectionId connection,
                             const absl::Status& status) {
  if (!directory_.IsServer(connection)) return false;
  const std::optional<int> server = directory_.ServerOf(connection);
  if (server.has_value()) {
    LogInfo("server ", *server, " is away",
            status.ok() ? "" : absl::StrCat(": ", status.message()));
    if (backups_ == nullptr) controller_.OnServerDetached(*server);
    controller_.OnServerStreamClosed(now, *server);
    away_until_[*server] = now + kDyingTime;
  }
  if (directory_.OnClosed(connection)) TellAddresses();
  if (server.has_value() && backups_ != nullptr) {
    LoseCopies(now, *server);
  }
  return true;
}

void ServerStreams::LoseCopies(absl::Time now, int server) {
  // First: what the others must have to take over is what is acknowledged now.
  for (int part = 0; part < backups_->parts(); ++part) {
    if (backups_->PrimaryOf(part) == server) controller_.OnServerDetached(part);
  }
  Execute(now, backups_->OnLost(now, server));
}

void ServerStreams::Send(int server, v1::MasterMessage message) {
  if (backups_ != nullptr) {
    // Of a part that is no more, nobody is to know.
    if (server >= backups_->parts()) return;
    message.set_part(server);
    server = backups_->PrimaryOf(server);
  }
  const auto connection = directory_.ConnectionOf(server);
  if (connection.has_value()) port_.Send({*connection}, std::move(message));
}

bool ServerStreams::Stop(int server) {
  const auto connection = directory_.ConnectionOf(server);
  if (connection.has_value()) SendStop({*connection}, kJobIsOver);
  return connection.has_value();
}

bool ServerStreams::SomeAreAway() const {
  return directory_.connections().size() < static_cast<size_t>(count());
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

void ServerStreams::SetCount(absl::Time now, int num_servers) {
  if (backups_ != nullptr) {
    if (num_servers != backups_->parts()) {
      Execute(now, backups_->SetServers(num_servers));
    }
    num_servers = backups_->needed();
    backups_->ForgetFrom(num_servers);
  }
  if (num_servers == count()) return;
  for (int server = num_servers; server < count(); ++server) {
    const auto connection = directory_.ConnectionOf(server);
    if (!connection.has_value()) continue;
    SendStop({*connection}, "scaled away");
    if (backups_ == nullptr) controller_.OnServerDetached(server);
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
    if (backups_ == nullptr) controller_.OnServerDetached(hello.server());
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
    if (backups_ != nullptr) {
      FillHosting(hello.server(), *welcome.mutable_hosting());
    }
    port_.Send({connection}, std::move(message));
  }
  pids_[hello.server()] = hello.pid();
  away_until_.erase(hello.server());
  if (change->addresses) TellAddresses();
  if (backups_ != nullptr) {
    if (change->replaced.has_value()) {
      LoseCopies(now, hello.server());
    }
    return Execute(now, backups_->OnHello(now, hello));
  }
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

void ServerStreams::OnTimer(absl::Time now) {
  if (backups_ != nullptr) Execute(now, backups_->OnTimer(now));
}

absl::Time ServerStreams::next_timer() const {
  absl::Time next =
      backups_ == nullptr ? absl::InfiniteFuture() : backups_->next_timer();
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
