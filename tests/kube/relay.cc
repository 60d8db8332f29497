#include "kube/relay.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "elasticdl/common/check.h"

namespace elasticdl::kube::test {
namespace {

// Port 0 takes a free one. Empty when it cannot be had.
Fd Listen(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(fd.get(), 50) != 0) {
    return Fd();
  }
  return fd;
}

int PortOf(const Fd& fd) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

Fd ConnectTo(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return Fd();
  }
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0) fd.Reset();
  freeaddrinfo(found);
  return fd;
}

}  // namespace

Relay::Relay(const std::string& host, const std::string& port)
    : upstream_host_(host),
      upstream_port_(port),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(Listen(0)) {
  ELASTICDL_CHECK(listener_.valid());
  port_ = PortOf(listener_);
  thread_ = Thread("relay", [this] { Run(); });
}

Relay::~Relay() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  Wake();
}

void Relay::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));
}

void Relay::Cut() {
  MutexLock lock(mu_);
  cut_ = true;
  Wake();
  while (!is_cut_) changed_.Wait(mu_);
}

void Relay::Mend() {
  MutexLock lock(mu_);
  cut_ = false;
  Wake();
  while (is_cut_) changed_.Wait(mu_);
}

void Relay::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      if (cut_ && !is_cut_) {
        connections_.clear();
        listener_.Reset();
      } else if (!cut_ && is_cut_) {
        listener_ = Listen(port_);
        ELASTICDL_CHECK(listener_.valid());
      }
      is_cut_ = cut_;
    }
    changed_.NotifyAll();
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0},
                               {listener_.get(), POLLIN, 0}};
    for (const Connection& one : connections_) {
      fds.push_back({one.client.get(), POLLIN, 0});
      fds.push_back({one.server.get(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), -1);
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof(count));
    size_t next = 2;
    for (auto it = connections_.begin(); it != connections_.end();) {
      const bool from_client = fds[next].revents != 0;
      const bool from_server = fds[next + 1].revents != 0;
      next += 2;
      const int client = it->client.get();
      const int server = it->server.get();
      const bool alive = (!from_client || Forward(client, server)) &&
                         (!from_server || Forward(server, client));
      it = alive ? std::next(it) : connections_.erase(it);
    }
    if (fds[1].revents != 0) Accept();
  }
}

void Relay::Accept() {
  Connection one;
  one.client.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!one.client.valid()) return;
  one.server = ConnectTo(upstream_host_, upstream_port_);
  if (one.server.valid()) connections_.push_back(std::move(one));
}

bool Relay::Forward(int from, int to) {
  char buffer[65536];
  const ssize_t size = read(from, buffer, sizeof(buffer));
  if (size <= 0) return false;
  for (ssize_t sent = 0; sent < size;) {
    const ssize_t n =
        send(to, buffer + sent, static_cast<size_t>(size - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return true;
}

}  // namespace elasticdl::kube::test
