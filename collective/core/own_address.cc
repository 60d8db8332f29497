// The address at which other hosts reach this one.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/strip.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/file.h"

namespace elasticdl::collective {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Empty if it cannot be resolved.
AddressList Lookup(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) {
    list = nullptr;
  }
  return AddressList(list, freeaddrinfo);
}

// Can other hosts use it?
bool IsForOthers(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    const uint32_t number = ntohl(v4->sin_addr.s_addr);
    return number >> 24 != IN_LOOPBACKNET && number != INADDR_ANY;
  }
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& v6 =
      reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  // Link-local addresses are useless without the name of the interface.
  return !IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_UNSPECIFIED(&v6) &&
         !IN6_IS_ADDR_LINKLOCAL(&v6);
}

std::string ToNumber(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// The local address of a connection to `peer`; nothing is sent. "" if other
// hosts cannot use it.
std::string Towards(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (colon == std::string::npos) return "";
  absl::string_view host = absl::string_view(peer).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const AddressList list = Lookup(std::string(host), peer.substr(colon + 1));
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const Fd fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage storage = {};
    socklen_t size = sizeof(storage);
    auto* const own = reinterpret_cast<sockaddr*>(&storage);
    if (fd.valid() && connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd.get(), own, &size) == 0 && IsForOthers(own)) {
      return ToNumber(own, size);
    }
  }
  return "";
}

// The address of this host's name, if an interface has it.
std::string OfName() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  const AddressList list = Lookup(name, "0");
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const Fd fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && IsForOthers(a->ai_addr) &&
        bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) {
      return ToNumber(a->ai_addr, a->ai_addrlen);
    }
  }
  return "";
}

std::string OfInterface() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all,
                                                               freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
      constexpr unsigned int kWorks = IFF_UP | IFF_RUNNING;
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family ||
          (i->ifa_flags & kWorks) != kWorks || !IsForOthers(i->ifa_addr)) {
        continue;
      }
      return ToNumber(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in)
                                                     : sizeof(sockaddr_in6));
    }
  }
  return "";
}

}  // namespace

std::string OwnAddress(const std::string& peer) {
  std::string address = Towards(peer);
  if (address.empty()) address = OfName();
  if (address.empty()) address = OfInterface();
  return address.empty() ? kLoopback : address;
}

}  // namespace elasticdl::collective
