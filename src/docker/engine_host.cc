#include "engine_host.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::docker {
namespace {

constexpr char kDefaultHost[] = "unix:///var/run/docker.sock";
constexpr char kPlainPort[] = ":2375";
constexpr char kTlsPort[] = ":2376";

absl::StatusOr<EngineAddress> OverNetwork(const EngineOptions& options,
                                          absl::string_view host,
                                          EngineAddress address) {
  while (absl::ConsumeSuffix(&host, "/")) {
  }
  if (host.empty() || absl::StrContains(host, '/')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "DOCKER_HOST=", address.name, ": expected tcp://HOST:PORT"));
  }
  const bool tls = options.tls_verify;
  const bool has_port = absl::StrContains(host, ':');
  address.base_url =
      absl::StrCat(tls ? "https://" : "http://", host,
                   has_port ? "" : (tls ? kTlsPort : kPlainPort));
  if (!tls) return address;
  const std::string folder =
      options.cert_path.empty() ? options.config_dir : options.cert_path;
  const std::pair<const char*, std::string*> files[] = {
      {"ca.pem", &address.ca_pem},
      {"cert.pem", &address.cert_pem},
      {"key.pem", &address.key_pem}};
  for (const auto& [name, pem] : files) {
    absl::StatusOr<std::string> text = ReadFile(JoinPath(folder, name));
    if (!text.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("TLS to ", address.name, ": ", text.status().message(),
                       "; DOCKER_CERT_PATH names the folder with ", name));
    }
    *pem = *std::move(text);
  }
  return address;
}

absl::Status SocketError(int error, const EngineAddress& address) {
  const std::string what = absl::StrCat("the Docker engine at ", address.name);
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTDIR:
      return absl::UnavailableError(absl::StrCat(
          what, " is not running (", strerror(error),
          "); start it (e.g. sudo systemctl start docker), or set DOCKER_HOST "
          "to where it listens"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          "no permission to use ", what,
          "; add yourself to the group that owns the socket (sudo usermod -aG "
          "docker $USER, then log in again)"));
    default:
      return ErrnoToStatus(error, absl::StrCat("connect to ", what));
  }
}

}  // namespace

absl::StatusOr<EngineAddress> ResolveEngine(const EngineOptions& options) {
  EngineAddress address;
  address.name = options.host.empty() ? kDefaultHost : options.host;
  absl::string_view host = address.name;
  if (absl::ConsumePrefix(&host, "unix://")) {
    // docker-py wrote unix://var/run/docker.sock, and so did old tutorials.
    address.socket = absl::StartsWith(host, "/") ? std::string(host)
                                                 : absl::StrCat("/", host);
    address.base_url = "http://localhost";
    return address;
  }
  if (absl::ConsumePrefix(&host, "tcp://") ||
      absl::ConsumePrefix(&host, "http://") ||
      absl::ConsumePrefix(&host, "https://")) {
    return OverNetwork(options, host, address);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("DOCKER_HOST=", address.name,
                   ": expected unix:///PATH or tcp://HOST:PORT",
                   absl::StartsWith(host, "ssh://")
                       ? "; for ssh, forward the socket: ssh -L "
                         "/tmp/docker.sock:/var/run/docker.sock HOST"
                       : ""));
}

absl::Status CheckSocket(const EngineAddress& address) {
  if (address.socket.empty()) return absl::OkStatus();
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (address.socket.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("DOCKER_HOST=", address.name,
                                                   ": a socket's path has at "
                                                   "most ",
                                                   sizeof(name.sun_path) - 1,
                                                   " characters"));
  }
  memcpy(name.sun_path, address.socket.data(), address.socket.size());
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoToStatus(errno, "socket");
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) ==
      0) {
    return absl::OkStatus();
  }
  return SocketError(errno, address);
}

}  // namespace elasticdl::docker
