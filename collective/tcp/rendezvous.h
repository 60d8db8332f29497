// Connects one member to others, whose addresses are known.
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

// A rank dials all lower ranks of its peers and waits for all higher ones. To
// notice the
// death of a higher rank, it also opens a connection to that rank's listener
// and sends nothing on it (a *probe*).
//
// Strangers may connect and send anything or nothing: they are dropped or
// ignored, and nobody waits for them. Thread-compatible.
class TcpRendezvous {
 public:
  // `peers`: whom to connect to; they must do the same.
  TcpRendezvous(const WorldSpec& world, const TcpListener& listener,
                std::vector<int> peers, AbortSignal& abort);

  // The sockets by rank; empty for those that are no peers.
  absl::StatusOr<std::vector<Fd>> Run(const std::vector<TcpAddress>& addresses,
                                      Deadline& deadline);

 private:
  enum class State {
    kDialling,    // to a lower rank: not connected yet
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
    // The part of the awaited message that has arrived.
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
  // Reads until there are `wanted` bytes; true when there are.
  absl::StatusOr<bool> Read(Connection& connection, size_t wanted);
  absl::Status Send(Connection& connection, const std::string& message);
  void Finish(Connection& connection);
  bool Heard(int rank) const;
  // ABORTED, blaming `rank`.
  absl::Status Gone(int rank, absl::string_view why) const;

  const WorldSpec& world_;
  const TcpListener& listener_;
  const std::vector<int> peers_;
  AbortSignal& abort_;
  // By rank.
  std::vector<TcpAddress> addresses_;
  std::list<Connection> connections_;
  std::vector<Fd> done_;
  int num_done_ = 0;
};

}  // namespace elasticdl::collective
