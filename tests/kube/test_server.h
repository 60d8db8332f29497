// A real HTTP(S) server on a free port of this machine.
#pragma once

#include <httplib.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "kube/certificates.h"
#include "support/temp_dir.h"

namespace elasticdl::kube::test {

// Thread-safe. Something that happens once; others wait for it.
class Gate {
 public:
  void Open();
  // False when a test's patience is over.
  bool Wait();

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

// Thread-safe. One handler sees every request. The destructor opens `over`, so
// that handlers that wait for it return.
class TestServer {
 public:
  using Handler =
      std::function<void(const httplib::Request&, httplib::Response&)>;
  struct Tls {
    KeyPair server;
    // Not empty: clients must have a certificate of this authority.
    std::string client_ca_pem;
  };

  explicit TestServer(Handler handler);
  TestServer(const Tls& tls, Handler handler);
  ~TestServer();

  int port() const { return port_; }
  // http(s)://127.0.0.1:<port>.
  std::string url() const;
  // Requests so far, as the connections they came over (ports of the client).
  std::vector<int> connections() const;
  // "GET /path?query" of each, as on the wire.
  std::vector<std::string> targets() const;
  Gate& over() { return over_; }

 private:
  void Start(Handler handler);

  elasticdl::test::TempDir dir_;
  bool tls_ = false;
  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  Gate up_;
  Gate over_;
  mutable Mutex mu_;
  std::vector<int> connections_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> targets_ ABSL_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace elasticdl::kube::test
