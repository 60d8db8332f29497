// The master's side of the streams to parameter servers, and the messages to
// workers that follow from them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"
#include "job_controller.h"
#include "job_output.h"
#include "server_backups.h"
#include "server_directory.h"

namespace elasticdl::master {

// Runs on the master's loop thread.
class ServerStreams {
 public:
  // `workers`: the streams on which workers have said hello, and their ids.
  // All must outlive this.
  ServerStreams(JobController& controller, WorkerPort& port,
                const std::map<ConnectionId, int64_t>& workers);

  // With what the master before this one has recorded of backups.
  void Resume(absl::Time now);

  // True: it is of a server, and is done with.
  bool OnMessage(absl::Time now, ConnectionId connection,
                 const v1::WorkerMessage& message);
  bool OnClosed(absl::Time now, ConnectionId connection,
                const absl::Status& status);

  // Sets the number of servers. Those beyond it are stopped; with backups, when
  // they are no longer needed.
  void SetCount(absl::Time now, int num_servers);
  // Servers 0 .. count()-1 must exist.
  int count() const { return directory_.count(); }
  bool IsAttached(int server) const {
    return directory_.ConnectionOf(server).has_value();
  }
  // Nothing: it is of no server, or was replaced by another stream.
  std::optional<int> ServerAt(ConnectionId connection) const {
    return directory_.ServerOf(connection);
  }
  // Some server has no stream now.
  bool SomeAreAway() const;

  // WorkerPort::SendToServer. With backups: to the primary of that part.
  void Send(int server, v1::MasterMessage message);
  // The job is over. Servers that are local pods also get a signal. False: the
  // server is not attached.
  bool Stop(int server);
  void StopAll();
  // A worker that lost its master may have missed the servers' addresses.
  void OnWorkerBack(ConnectionId connection);

  // A server whose stream broke some time ago and that has not said hello
  // since: its process, if it still exists, hangs.
  struct Hanging {
    int server = 0;
    int64_t pid = 0;
  };
  // Each once.
  std::vector<Hanging> TakeHanging(absl::Time now);
  void OnTimer(absl::Time now);
  // When TakeHanging or OnTimer has something to do.
  absl::Time next_timer() const;

 private:
  void OnHello(absl::Time now, ConnectionId connection,
               const v1::ServerHello& hello);
  void OnServerMessage(absl::Time now, int server,
                       const v1::WorkerMessage& message);
  void LoseCopies(absl::Time now, int server);
  void Execute(absl::Time now, const ServerBackups::Decisions& decisions);
  void FillHosting(int server, v1::PsHosting& hosting) const;
  void TellAddresses();
  void SendStop(const std::vector<ConnectionId>& connections,
                const std::string& reason);

  JobController& controller_;
  WorkerPort& port_;
  const std::map<ConnectionId, int64_t>& workers_;
  ServerDirectory directory_;
  // Null: without --ps_backup.
  std::unique_ptr<ServerBackups> backups_;
  // By server: of the last hello.
  std::map<int, int64_t> pids_;
  std::map<int, absl::Time> away_until_;
};

}  // namespace elasticdl::master
