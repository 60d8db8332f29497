// A wire that can be cut: forwards TCP connections from a free port of this
// machine to a server, until it is told otherwise.
#pragma once

#include <sys/socket.h>

#include <list>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::kube::test {

// Thread-safe.
class Relay {
 public:
  // `host` is an address or a name. Ends the test program when there is no port
  // to be had.
  Relay(const std::string& host, const std::string& port);
  ~Relay();

  // The same all its life.
  int port() const { return port_; }
  // Ends all connections and refuses new ones, as a server that was killed.
  void Cut();
  void Mend();

 private:
  struct Connection {
    Fd client;
    Fd server;
  };

  void Run();
  void Accept();
  // False when one side has ended.
  bool Forward(int from, int to);
  void Wake();

  const std::string upstream_host_;
  const std::string upstream_port_;
  Fd wake_;
  int port_ = 0;

  // Only the thread uses these.
  Fd listener_;
  std::list<Connection> connections_;

  Mutex mu_;
  CondVar changed_;
  bool cut_ ABSL_GUARDED_BY(mu_) = false;
  bool is_cut_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Thread thread_;
};

}  // namespace elasticdl::kube::test
