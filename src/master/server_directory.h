// Which parameter servers are attached, on which streams, and their addresses
// for workers.
//
//   a server of that number   what happens               then
//   ------------------------  -------------------------  ----------------------
//   away                      hello without an address   attached: it reads its
//                                                        log
//   away or attached          hello with an address      workers can reach it
//   attached                  hello on another stream    that one counts; the
//                                                        old stream is stale
//   attached                  its stream closes          away
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/rendezvous/stream_server.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Thread-compatible.
class ServerDirectory {
 public:
  using ConnectionId = rendezvous::ConnectionId;

  // For servers 0 .. num_servers-1. With `backups`, servers do not say where
  // the part of the model with their number is: SetAddress does.
  explicit ServerDirectory(int num_servers, bool backups = false)
      : backups_(backups) {
    SetCount(num_servers);
  }
  // Sets the number of servers. Those beyond it are forgotten.
  void SetCount(int num_servers);
  int count() const { return addresses_.addresses_size(); }

  struct Change {
    // The stream is new: it is to be answered.
    bool attached = false;
    // Workers must be told.
    bool addresses = false;
    // The stream on which this server was before, to be closed.
    std::optional<ConnectionId> replaced;
  };
  // FAILED_PRECONDITION for a number that no server of this job has; the
  // connection is a server's all the same.
  absl::StatusOr<Change> OnHello(ConnectionId connection,
                                 const v1::ServerHello& hello);
  // True: workers must be told.
  bool OnClosed(ConnectionId connection);

  // Did a server (attached, former or refused) send Hello on it?
  bool IsServer(ConnectionId connection) const {
    return known_.count(connection) != 0;
  }
  // Nothing for the stream of a former or refused one.
  std::optional<int> ServerOf(ConnectionId connection) const;
  // Nothing when it is away.
  std::optional<ConnectionId> ConnectionOf(int server) const;
  // By number; of those that are there.
  std::vector<ConnectionId> connections() const;
  // By number, empty for those that cannot be reached.
  const v1::Servers& addresses() const { return addresses_; }
  // True if it was another one.
  bool SetAddress(int server, const std::string& address);

 private:
  const bool backups_;
  // By number.
  std::map<int, ConnectionId> connections_;
  std::set<ConnectionId> known_;
  v1::Servers addresses_;
};

}  // namespace elasticdl::master
