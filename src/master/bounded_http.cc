#include "bounded_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "elasticdl/common/clock.h"

namespace elasticdl::master {
namespace {

// A reader that takes nothing for this long is gone.
constexpr absl::Duration kWriteTime = absl::Seconds(2);

bool IsReady(int socket, int16_t events, absl::Duration timeout) {
  const absl::Time end = Clock::Real().Now() + timeout;
  for (;;) {
    const absl::Duration left =
        std::max(end - Clock::Real().Now(), absl::ZeroDuration());
    pollfd entry = {socket, events, 0};
    const int ready =
        poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0;
  }
}

void Describe(const sockaddr_storage& address, std::string& ip, int& port) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    port = ntohs(v6.sin6_port);
  }
  ip = text.data();
}

// Runs on one thread of the server.
class BoundedStream final : public httplib::Stream {
 public:
  explicit BoundedStream(int socket) : socket_(socket) {}

  bool is_readable() const override {
    return begin_ < end_ ||
           (bytes_left_ > 0 &&
            IsReady(socket_, POLLIN, deadline_ - Clock::Real().Now()));
  }
  bool is_writable() const override {
    if (!IsReady(socket_, POLLOUT, kWriteTime)) return false;
    // Who has closed its end reads no more.
    char byte = 0;
    const ssize_t seen = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return seen > 0 || (seen < 0 && (errno == EAGAIN || errno == EINTR));
  }
  // httplib reads lines byte by byte.
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_) {
      if (!is_readable()) return -1;
      const ssize_t got = recv(socket_, buffer_.data(),
                               std::min(buffer_.size(), bytes_left_), 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      bytes_left_ -= end_;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!is_writable()) return -1;
    return send(socket_, from, size, MSG_NOSIGNAL);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) ==
        0) {
      Describe(address, ip, port);
    }
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    if (getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) ==
        0) {
      Describe(address, ip, port);
    }
  }
  socket_t socket() const override { return socket_; }

 private:
  const int socket_;
  const absl::Time deadline_ =
      Clock::Real().Now() + BoundedHttpServer::kMostTime;
  size_t bytes_left_ = BoundedHttpServer::kMostBytes;
  std::array<char, 4096> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// The connection at hand is closed unheard. With less alignment than what
// follows in the file, mold 1.10 makes some programs that cannot be started.
alignas(8) thread_local bool refusing = false;

// httplib takes a Range header apart with a regular expression before it calls
// us, which needs 600 bytes of stack for each of up to 8,192 characters. Where
// the stack is not limited (ulimit -s), new threads have 2 MB only.
class LargeStacks {
 public:
  LargeStacks() {
    pthread_attr_init(&before_);
    pthread_getattr_default_np(&before_);
    size_t bytes = 0;
    pthread_attr_getstacksize(&before_, &bytes);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, std::max(bytes, kBytes));
    pthread_setattr_default_np(&large);
    pthread_attr_destroy(&large);
  }
  ~LargeStacks() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  LargeStacks(const LargeStacks&) = delete;
  LargeStacks& operator=(const LargeStacks&) = delete;

 private:
  static constexpr size_t kBytes = 16 << 20;
  pthread_attr_t before_;
};

class BoundedPool final : public httplib::TaskQueue {
 public:
  explicit BoundedPool(size_t threads) {
    const LargeStacks stacks;
    pool_ = std::make_unique<httplib::ThreadPool>(threads);
  }

  // On the thread that accepts.
  void enqueue(std::function<void()> serve) override {
    if (waiting_.load() >= BoundedHttpServer::kMostWaiting) {
      refusing = true;
      serve();
      refusing = false;
      return;
    }
    waiting_.fetch_add(1);
    pool_->enqueue([this, serve = std::move(serve)] {
      waiting_.fetch_sub(1);
      refusing = closing_.load();
      serve();
      refusing = false;
    });
  }
  // Who still waits for a thread is not served any more: it could take a
  // minute.
  void shutdown() override {
    closing_.store(true);
    pool_->shutdown();
  }

 private:
  std::unique_ptr<httplib::ThreadPool> pool_;
  std::atomic<size_t> waiting_{0};
  std::atomic<bool> closing_{false};
};

}  // namespace

BoundedHttpServer::BoundedHttpServer(size_t threads) {
  new_task_queue = [threads] { return new BoundedPool(threads); };
}

bool BoundedHttpServer::process_and_close_socket(socket_t socket) {
  bool served = false;
  if (!refusing) {
    BoundedStream stream(socket);
    bool closed = false;
    served = process_request(
        stream, /*close_connection=*/true, closed,
        // Everything is small enough to be sent whole.
        [](httplib::Request& request) { request.ranges.clear(); });
  }
  shutdown(socket, SHUT_RDWR);
  close(socket);
  return served;
}

}  // namespace elasticdl::master
