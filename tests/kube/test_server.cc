#include "kube/test_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"

namespace elasticdl::kube::test {
namespace {

// Only a failing test waits that long.
constexpr absl::Duration kPatience = absl::Seconds(20);

}  // namespace

void Gate::Open() {
  // Told under the lock: whoever waits may end the gate right after.
  MutexLock lock(mu_);
  open_ = true;
  changed_.NotifyAll();
}

bool Gate::Wait() {
  const absl::Time until = Clock::Real().Now() + kPatience;
  MutexLock lock(mu_);
  while (!open_) {
    const absl::Duration left = until - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return true;
}

TestServer::TestServer(Handler handler)
    : server_(std::make_unique<httplib::Server>()) {
  Start(std::move(handler));
}

TestServer::TestServer(const Tls& tls, Handler handler) : tls_(true) {
  const auto write = [this](const char* name, const std::string& text) {
    ELASTICDL_CHECK(WriteFileAtomic(dir_.Path(name), text).ok());
    return dir_.Path(name);
  };
  const std::string cert = write("cert", tls.server.cert_pem);
  const std::string key = write("key", tls.server.key_pem);
  const std::string ca = write("ca", tls.client_ca_pem);
  server_ = std::make_unique<httplib::SSLServer>(
      cert.c_str(), key.c_str(),
      tls.client_ca_pem.empty() ? nullptr : ca.c_str());
  ELASTICDL_CHECK(server_->is_valid());
  Start(std::move(handler));
}

TestServer::~TestServer() {
  over_.Open();
  server_->stop();
  thread_.Join();
}

void TestServer::Start(Handler handler) {
  const auto all = [this, handler = std::move(handler)](
                       const httplib::Request& request,
                       httplib::Response& response) {
    {
      MutexLock lock(mu_);
      connections_.push_back(request.remote_port);
      targets_.push_back(absl::StrCat(request.method, " ", request.target));
    }
    handler(request, response);
  };
  server_->Get(".*", all);
  server_->Post(".*", all);
  server_->Put(".*", all);
  server_->Patch(".*", all);
  server_->Delete(".*", all);
  server_->set_keep_alive_max_count(10000);
  // Else each answer waits 40 ms for the kernel's delayed acknowledgement.
  server_->set_tcp_nodelay(true);
  // A connection that idles holds one of the server's threads.
  server_->set_keep_alive_timeout(5);
  server_->new_task_queue = [this] {
    // Called once the server accepts: only then does stop() have an effect.
    up_.Open();
    return new httplib::ThreadPool(32);
  };
  port_ = server_->bind_to_any_port("127.0.0.1");
  ELASTICDL_CHECK(port_ > 0);
  thread_ = Thread("test-server", [this] { server_->listen_after_bind(); });
  ELASTICDL_CHECK(up_.Wait());
}

std::string TestServer::url() const {
  return absl::StrCat(tls_ ? "https" : "http", "://127.0.0.1:", port_);
}

std::vector<int> TestServer::connections() const {
  MutexLock lock(mu_);
  return connections_;
}

std::vector<std::string> TestServer::targets() const {
  MutexLock lock(mu_);
  return targets_;
}

}  // namespace elasticdl::kube::test
