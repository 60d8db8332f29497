// Bytes on a connection to the status page: whatever they are, the next
// request is answered, and nobody without the token changes the job.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "elasticdl/common/file.h"
#include "fuzz.h"
#include "http_status.h"

namespace elasticdl::master {
namespace {

constexpr char kToken[] = "0123456789abcdef";

class Server {
 public:
  Server() {
    HttpStatus::Options options;
    options.token = kToken;
    HttpStatus::Commands commands;
    commands.stop = []() -> absl::Status {
      ELASTICDL_CHECK(false);  // The bytes do not hold the token.
      return absl::OkStatus();
    };
    commands.scale = [](const ScaleRequest&) -> absl::Status {
      ELASTICDL_CHECK(false);
      return absl::OkStatus();
    };
    auto server = HttpStatus::Start(options, board_, commands);
    ELASTICDL_CHECK(server.ok());
    server_ = *std::move(server);
    const std::string address = server_->address();
    port_ = static_cast<uint16_t>(
        std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  }

  uint16_t port() const { return port_; }

 private:
  StatusBoard board_;
  std::unique_ptr<HttpStatus> server_;
  uint16_t port_ = 0;
};

void Run(absl::string_view bytes) {
  static Server* const server = new Server;
  // Somebody who knows the token may do all that.
  if (bytes.find(kToken) != absl::string_view::npos) return;
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(server->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ELASTICDL_CHECK(connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
                          sizeof(address)) == 0);
  static_cast<void>(
      send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  shutdown(socket.get(), SHUT_WR);
  // To the end of the answer, if there is one.
  char answer[4096];
  pollfd readable = {socket.get(), POLLIN, 0};
  while (poll(&readable, 1, 10000) == 1 &&
         recv(socket.get(), answer, sizeof(answer), 0) > 0) {
  }
  ELASTICDL_CHECK((readable.revents & (POLLIN | POLLHUP | POLLERR)) != 0);
}

}  // namespace
}  // namespace elasticdl::master

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::master::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
