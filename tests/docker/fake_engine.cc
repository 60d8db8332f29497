#include "docker/fake_engine.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/check.h"

namespace elasticdl::docker {
namespace {

// Waits for data. False: stopped.
bool WaitReadable(int fd, int stop) {
  pollfd fds[] = {{fd, POLLIN, 0}, {stop, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  return fds[1].revents == 0;
}

// Reads a connection, a line or a number of bytes at a time.
class Reader {
 public:
  Reader(int fd, int stop) : fd_(fd), stop_(stop) {}
  // False: the connection has ended.
  bool Line(std::string* line) {
    size_t end;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (!More()) return false;
    }
    *line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return true;
  }
  bool Bytes(size_t size, std::string* out) {
    while (buffer_.size() < size) {
      if (!More()) return false;
    }
    out->append(buffer_, 0, size);
    buffer_.erase(0, size);
    return true;
  }

 private:
  bool More() {
    char data[16384];
    if (!WaitReadable(fd_, stop_)) return false;
    const ssize_t n = read(fd_, data, sizeof(data));
    if (n <= 0) return false;
    buffer_.append(data, static_cast<size_t>(n));
    return true;
  }
  const int fd_;
  const int stop_;
  std::string buffer_;
};

bool ReadHead(Reader& reader, FakeEngine::Request* request) {
  std::string line;
  if (!reader.Line(&line)) return false;
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  ELASTICDL_CHECK(words.size() == 3);
  request->method = words[0];
  request->target = words[1];
  while (reader.Line(&line)) {
    if (line.empty()) return true;
    const std::pair<std::string, std::string> header =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    request->headers[absl::AsciiStrToLower(header.first)] = header.second;
  }
  return false;
}

bool ReadBody(Reader& reader, FakeEngine::Request* request) {
  int64_t length = 0;
  if (request->headers["transfer-encoding"] != "chunked") {
    if (!absl::SimpleAtoi(request->headers["content-length"], &length)) {
      return true;
    }
    return reader.Bytes(static_cast<size_t>(length), &request->body);
  }
  while (true) {
    std::string line;
    if (!reader.Line(&line)) return false;
    const size_t size = std::strtoul(line.c_str(), nullptr, 16);
    if (!reader.Bytes(size, &request->body) || !reader.Line(&line)) {
      return false;
    }
    if (size == 0) return true;
  }
}

std::string Decode(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const std::string digits(text.substr(i + 1, 2));
      result += static_cast<char>(std::strtoul(digits.c_str(), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

void FakeEngine::Reply::Write(absl::string_view data) {
  while (!data.empty()) {
    const ssize_t n = send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    data.remove_prefix(static_cast<size_t>(n));
  }
}

void FakeEngine::Reply::Send(int code, absl::string_view body,
                             const std::string& headers) {
  Write(absl::StrCat("HTTP/1.1 ", code, " X\r\n", headers,
                     "Content-Length: ", body.size(), "\r\n\r\n", body));
}

void FakeEngine::Reply::Begin(int code, const std::string& headers) {
  Write(absl::StrCat("HTTP/1.1 ", code, " X\r\n", headers,
                     "Transfer-Encoding: chunked\r\n\r\n"));
}

void FakeEngine::Reply::Chunk(absl::string_view data) {
  Write(absl::StrCat(absl::StrFormat("%x", data.size()), "\r\n", data, "\r\n"));
}

void FakeEngine::Reply::End() { Write("0\r\n\r\n"); }

bool FakeEngine::Reply::WaitForHangup() {
  char data[1024];
  while (WaitReadable(fd_, stop_)) {
    if (read(fd_, data, sizeof(data)) <= 0) return true;
  }
  return false;
}

FakeEngine::FakeEngine(const std::string& socket_path,
                       const std::string& api_version, Handler handler)
    : api_version_(api_version), handler_(std::move(handler)) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  ELASTICDL_CHECK(socket_path.size() < sizeof(name.sun_path));
  memcpy(name.sun_path, socket_path.data(), socket_path.size());
  listener_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  stop_.Reset(eventfd(0, EFD_CLOEXEC));
  ELASTICDL_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&name),
                       sizeof(name)) == 0);
  ELASTICDL_CHECK(listen(listener_.get(), 16) == 0);
  thread_ = Thread("fake-engine", [this] { Run(); });
}

FakeEngine::~FakeEngine() {
  const uint64_t one = 1;
  ELASTICDL_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.Join();
}

void FakeEngine::Run() {
  while (WaitReadable(listener_.get(), stop_.get())) {
    const Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) Serve(fd.get());
  }
}

void FakeEngine::Serve(int fd) {
  Reader reader(fd, stop_.get());
  Request request;
  Reply reply(fd, stop_.get());
  if (!ReadHead(reader, &request)) return;
  if (request.target == "/_ping") {
    reply.Send(200, "OK",
               api_version_.empty()
                   ? ""
                   : absl::StrCat("API-Version: ", api_version_, "\r\n"));
    return;
  }
  // The handler of /refuse-early answers before the body is read.
  if (request.target.find("refuse-early") == std::string::npos) {
    if (!ReadBody(reader, &request)) return;
  }
  {
    MutexLock lock(mu_);
    requests_.push_back(request);
  }
  handler_(request, reply);
}

std::vector<FakeEngine::Request> FakeEngine::requests() const {
  MutexLock lock(mu_);
  return requests_;
}

std::vector<std::string> QueryValues(const std::string& target,
                                     const std::string& key) {
  std::vector<std::string> values;
  const size_t mark = target.find('?');
  if (mark == std::string::npos) return values;
  for (absl::string_view part :
       absl::StrSplit(absl::string_view(target).substr(mark + 1), '&')) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first == key) values.push_back(Decode(pair.second));
  }
  return values;
}

}  // namespace elasticdl::docker
