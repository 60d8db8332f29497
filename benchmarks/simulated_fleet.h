// Simulated workers, which are attached to a real master over real connections:
// they answer like workers but compute nothing. They share the cores with the
// master, so they are made to cost little: one thread and a few frames of
// HTTP/2, without gRPC.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "elasticdl/rendezvous/stream_client.h"
#include "elasticdl/v1/master.pb.h"
#include "protocol.h"

namespace elasticdl {

// Of the simulated cluster.
inline constexpr int kPerHost = 8;
// So many connect at a time, to keep within the backlog of the master's socket.
inline constexpr int kMostConnecting = 200;

[[noreturn]] inline void Die(const std::string& why) {
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  exit(1);
}

// The client's end of one stream: as much of HTTP/2 and gRPC as it needs.
class Stream {
 public:
  Stream(int port, const std::string& token)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (fd_ < 0 ||
        (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 &&
         errno != EINPROGRESS)) {
      Die(absl::StrCat("connect: ", std::strerror(errno)));
    }
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Windows without limits: nothing that the master sends must be confirmed.
    AddFrame(kSettings, 0, 0, std::string("\0\4\x7f\xff\xff\xff", 6));
    AddFrame(kWindowUpdate, 0, 0, std::string("\x7f\xff\0\0", 4));
    std::string headers = "\x83\x86";  // POST, http
    headers += '\x04';
    AddText("/elasticdl.v1.Master/Attach", headers);
    headers += '\x01';
    AddText("localhost", headers);
    headers += "\x0f\x10";
    AddText("application/grpc", headers);
    AddHeader("te", "trailers", headers);
    AddHeader(rendezvous::kTokenKey, token, headers);
    AddHeader(rendezvous::kVersionKey, rendezvous::kProtocolVersion, headers);
    AddFrame(kHeaders, kEndHeaders, 1, headers);
  }
  ~Stream() { close(fd_); }
  int fd() const { return fd_; }

  void Send(const v1::WorkerMessage& message) {
    const std::string bytes = message.SerializeAsString();
    AddFrame(
        kData, 0, 1,
        absl::StrCat(absl::string_view("\0", 1),
                     Number(static_cast<uint32_t>(bytes.size()), 4), bytes));
    for (int64_t& window : windows_) {
      window -= static_cast<int64_t>(bytes.size()) + 5;
      if (window < 0) Die("the master does not keep up with reading");
    }
    if (connected_) Write();
  }

  // The connection is there.
  void OnWritable() {
    connected_ = true;
    Write();
  }

  // Calls handle(message) for each that has arrived.
  template <typename Handler>
  void OnReadable(const Handler& handle) {
    static char buffer[1 << 18];
    while (true) {
      const ssize_t n = read(fd_, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) Die("the master has closed a stream");
      in_.append(buffer, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof(buffer)) break;
    }
    size_t at = 0;
    while (in_.size() - at >= kFrameHeader) {
      const size_t length = Parse(in_.data() + at, 3);
      if (in_.size() - at - kFrameHeader < length) break;
      OnFrame(in_[at + 3], in_[at + 4], Parse(in_.data() + at + 5, 4),
              absl::string_view(in_).substr(at + kFrameHeader, length));
      at += kFrameHeader + length;
    }
    in_.erase(0, at);
    if (!out_.empty()) Write();
    at = 0;
    while (data_.size() - at >= 5) {
      const size_t length = Parse(data_.data() + at + 1, 4);
      if (data_.size() - at - 5 < length) break;
      v1::MasterMessage message;
      if (!message.ParseFromArray(data_.data() + at + 5,
                                  static_cast<int>(length))) {
        Die("a message that cannot be understood");
      }
      at += 5 + length;
      handle(message);
    }
    data_.erase(0, at);
  }

 private:
  enum Type : char {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8
  };
  static constexpr char kAck = 1;
  static constexpr char kEndStream = 1;
  static constexpr char kEndHeaders = 4;
  static constexpr size_t kFrameHeader = 9;

  static std::string Number(uint32_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) {
      text += static_cast<char>(value >> (8 * i));
    }
    return text;
  }
  static size_t Parse(const char* bytes, int count) {
    size_t value = 0;
    for (int i = 0; i < count; ++i) {
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }
  static void AddText(absl::string_view text, std::string& headers) {
    if (text.size() >= 127) Die("a header that is too long");
    absl::StrAppend(&headers, Number(static_cast<uint32_t>(text.size()), 1),
                    text);
  }
  static void AddHeader(absl::string_view key, absl::string_view value,
                        std::string& headers) {
    headers += '\0';
    AddText(key, headers);
    AddText(value, headers);
  }
  void AddFrame(Type type, char flags, uint32_t stream,
                absl::string_view payload) {
    absl::StrAppend(&out_, Number(static_cast<uint32_t>(payload.size()), 3));
    out_ += type;
    out_ += flags;
    absl::StrAppend(&out_, Number(stream, 4), payload);
  }
  void OnFrame(char type, char flags, size_t stream,
               absl::string_view payload) {
    switch (type) {
      case kWindowUpdate:
        windows_[stream == 0 ? 0 : 1] +=
            static_cast<int64_t>(Parse(payload.data(), 4));
        break;
      case kData:
        absl::StrAppend(&data_, payload);
        break;
      case kHeaders:
        if (flags & kEndStream) Die("the master has ended a stream");
        break;
      case kSettings:
        if (flags & kAck) break;
        AddFrame(kSettings, kAck, 0, "");
        TakeSettings(payload);
        break;
      case kPing:
        if (!(flags & kAck)) AddFrame(kPing, kAck, 0, payload);
        break;
      case kReset:
      case kGoAway:
        Die("the master has broken a stream");
      default:
        break;
    }
  }
  // The size of windows is all that matters here.
  void TakeSettings(absl::string_view payload) {
    constexpr size_t kInitialWindowSize = 4;
    for (; payload.size() >= 6; payload.remove_prefix(6)) {
      if (Parse(payload.data(), 2) != kInitialWindowSize) continue;
      const auto size = static_cast<int64_t>(Parse(payload.data() + 2, 4));
      windows_[1] += size - window_size_;
      window_size_ = size;
    }
  }
  void Write() {
    const ssize_t n = write(fd_, out_.data(), out_.size());
    if (n != static_cast<ssize_t>(out_.size())) {
      Die(absl::StrCat("write: ", std::strerror(errno)));
    }
    out_.clear();
  }

  const int fd_;
  bool connected_ = false;
  // What it may send, on the connection and the stream, as every one begins.
  int64_t windows_[2] = {65535, 65535};
  int64_t window_size_ = 65535;
  std::string out_;
  std::string in_;
  std::string data_;
};

// Counts the members that have the offers of the newest world.
class Worlds {
 public:
  // Returns true for the last member.
  bool Connected(int64_t generation, int size) {
    if (generation > generation_) {
      generation_ = generation;
      size_ = size;
      connected_ = 0;
    }
    return generation == generation_ && ++connected_ == size_;
  }
  // True for the first member that asks: one reports for all.
  bool ClaimLevel(int64_t generation) {
    if (generation <= claimed_) return false;
    claimed_ = generation;
    return true;
  }
  bool IsComplete(int size, int64_t after) const {
    return size_ == size && connected_ == size && generation_ > after;
  }
  int64_t generation() const { return generation_; }

 private:
  int64_t generation_ = 0;
  int size_ = 0;
  int connected_ = 0;
  int64_t claimed_ = 0;
};

// Answers like a worker. The last member to get the offers reports Level.
class SimulatedWorker {
 public:
  SimulatedWorker(int port, const std::string& token, int64_t id,
                  Worlds& worlds)
      : id_(id), worlds_(worlds), stream_(port, token) {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(id);
    stream_.Send(hello);
  }
  Stream& stream() { return stream_; }
  bool welcome() const { return welcome_; }
  int64_t id() const { return id_; }
  // It has trained so many more of its records, as far as it has them. All of
  // them until now.
  int64_t Train(int64_t records) {
    return trained_ = std::min(granted_, trained_ + records);
  }

  void Answer(const v1::MasterMessage& message) {
    v1::WorkerMessage answer;
    if (message.has_welcome()) {
      welcome_ = true;
      answer.mutable_ready()->set_host(absl::StrCat("host-", id_ / kPerHost));
    } else if (message.has_ping()) {
      answer.mutable_pong();
    } else if (message.has_prepare()) {
      // Only their number: each worker would make a list of all.
      const v1::MemberList& list = message.prepare().list();
      if (list.base() == 0) size_ = 0;
      size_ += list.ids_size() - list.dropped_size();
      urgent_ = message.prepare().urgent();
      answer.mutable_offer()->set_generation(message.prepare().generation());
      // About as long as a real offer: an address and a key.
      answer.mutable_offer()->set_offer(std::string(64, 'x'));
    } else if (message.has_task()) {
      const v1::LedgerRange& range = message.task().range();
      granted_ += range.end() - range.begin();
      return;
    } else if (message.has_offers()) {
      return Connect(message.offers().generation());
    } else if (message.has_switch_()) {
      Enter(message.switch_().generation());
      if (worlds_.ClaimLevel(message.switch_().generation())) {
        SayLevel(message.switch_().generation());
      }
      return;
    } else {
      return;
    }
    stream_.Send(answer);
  }

 private:
  void Connect(int64_t generation) {
    v1::WorkerMessage connected;
    connected.mutable_connected()->set_generation(generation);
    stream_.Send(connected);
    if (urgent_) Enter(generation);
    if (worlds_.Connected(generation, size_)) SayLevel(generation);
  }
  void Enter(int64_t generation) {
    for (const auto stage : {v1::Loading::LOADING, v1::Loading::LOADED}) {
      v1::WorkerMessage message;
      message.mutable_loading()->set_generation(generation);
      message.mutable_loading()->set_stage(stage);
      stream_.Send(message);
    }
  }
  void SayLevel(int64_t generation) {
    v1::WorkerMessage level;
    level.mutable_level()->set_generation(generation);
    stream_.Send(level);
  }

  const int64_t id_;
  Worlds& worlds_;
  Stream stream_;
  bool welcome_ = false;
  bool urgent_ = false;
  int size_ = 0;
  int64_t granted_ = 0;
  int64_t trained_ = 0;
};

// All simulated workers, on the thread that waits.
class Fleet {
 public:
  Fleet(int port, const std::string& token)
      : port_(port), token_(token), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Fleet() {
    all_.clear();
    close(epoll_);
  }

  void Start(int workers) {
    wanted_ = workers;
    StartMore();
  }
  size_t size() const { return all_.size(); }
  int64_t generation() const { return worlds_.generation(); }
  void Kill(size_t index) { all_.erase(all_.begin() + index); }
  const std::vector<std::unique_ptr<SimulatedWorker>>& workers() const {
    return all_;
  }

  // Until all workers are in one world, newer than `after`.
  void Form(int64_t after) {
    const absl::Time deadline = absl::Now() + absl::Minutes(10);
    while (next_id_ < wanted_ ||
           !worlds_.IsComplete(static_cast<int>(all_.size()), after)) {
      Turn(absl::Seconds(1));
      if (absl::Now() > deadline) {
        Die(absl::StrCat("no world of ", all_.size(), " workers came about"));
      }
    }
  }

  // Answers what comes within this time.
  void Turn(absl::Duration time) {
    epoll_event events[256];
    const auto milliseconds =
        static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(time)));
    const int count = epoll_wait(epoll_, events, 256, milliseconds);
    for (int i = 0; i < count; ++i) {
      Handle(*static_cast<SimulatedWorker*>(events[i].data.ptr),
             events[i].events);
    }
  }

 private:
  void StartMore() {
    while (next_id_ < wanted_ && connecting_ < kMostConnecting) {
      all_.push_back(std::make_unique<SimulatedWorker>(port_, token_,
                                                       next_id_++, worlds_));
      ++connecting_;
      Watch(EPOLL_CTL_ADD, EPOLLOUT, *all_.back());
    }
  }
  void Watch(int operation, uint32_t events, SimulatedWorker& worker) const {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = &worker;
    if (epoll_ctl(epoll_, operation, worker.stream().fd(), &event) != 0) {
      Die(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
    }
  }
  void Handle(SimulatedWorker& worker, uint32_t events) {
    if (events & EPOLLOUT) {
      worker.stream().OnWritable();
      Watch(EPOLL_CTL_MOD, EPOLLIN, worker);
      return;
    }
    const bool was_welcome = worker.welcome();
    worker.stream().OnReadable(
        [&](const v1::MasterMessage& message) { worker.Answer(message); });
    if (was_welcome || !worker.welcome()) return;
    --connecting_;
    StartMore();
  }

  const int port_;
  const std::string token_;
  const int epoll_;
  Worlds worlds_;
  int wanted_ = 0;
  int next_id_ = 0;
  int connecting_ = 0;
  std::vector<std::unique_ptr<SimulatedWorker>> all_;
};

}  // namespace elasticdl
