// Connects one member with all others, once it knows where they are.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/file.h"
#include "tcp/address.h"
#include "tcp/mesh.h"

namespace elasticdl::collective {

// A rank dials all lower ones and waits for all higher ones. To notice the
// death of one that it waits for, it also opens a connection to that one's
// listener and says nothing on it (a *probe*).
//
// Strangers may connect and say anything or nothing: they are dropped, or
// ignored, and nobody waits for them. Thread-compatible.
class TcpRendezvous {
 public:
  TcpRendezvous(const WorldSpec& world, const TcpListener& listener,
                AbortSignal& abort);

  // The sockets by rank.
  absl::StatusOr<std::vector<Fd>> Run(const std::vector<TcpAddress>& addresses,
                                      Deadline& deadline);

 private:
  enum class State {
    kDialling,    // to a lower rank: connection not there yet
    kAwaitReply,  // hello sent
    kAwaitHello,  // accepted
    kAwaitConfirm,
    kProbing,  // connected to the listener of a higher rank, or about to be
    kDone,
    kDropped,
  };
  struct Connection {
    State state;
    // -1 while unknown.
    int rank;
    Fd socket;
    std::string hello;
    std::string reply;
    // What has come of the message that is awaited.
    std::string received;
  };

  absl::Status DialAll();
  absl::Status WaitAndHandle(Deadline& deadline);
  void AcceptAll();
  absl::Status Handle(Connection& connection);
  absl::Status HandleAsDialler(Connection& connection);
  void HandleAsListener(Connection& connection);
  absl::Status HandleProbe(Connection& connection);
  void TakeHello(Connection& connection);
  void TakeConfirm(Connection& connection);
  // Reads towards `wanted` bytes; true when all are there.
  absl::StatusOr<bool> Read(Connection& connection, size_t wanted);
  absl::Status Send(Connection& connection, const std::string& message);
  void Finish(Connection& connection);
  bool Heard(int rank) const;
  // ABORTED, blaming `rank`.
  absl::Status Gone(int rank, absl::string_view why) const;

  const WorldSpec& world_;
  const TcpListener& listener_;
  AbortSignal& abort_;
  // By rank.
  std::vector<TcpAddress> addresses_;
  std::list<Connection> connections_;
  std::vector<Fd> done_;
  int num_done_ = 0;
};

}  // namespace elasticdl::collective
