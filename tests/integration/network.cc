#include "integration/network.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/status.h"

namespace elasticdl::test {
namespace {

constexpr size_t kPacketBytes = 65536;

}  // namespace

std::string Network::Address(int host) {
  return absl::StrCat("10.77.0.", host);
}

std::string Network::OtherAddress(int host) {
  return absl::StrCat("10.77.1.", host);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(
    int hosts, const std::string& folder, uint32_t seed) {
  std::unique_ptr<Network> network(new Network(folder, seed));
  network->hosts_.resize(static_cast<size_t>(hosts) + 1);
  std::ofstream file(network->hosts_file_);
  file << "127.0.0.1 localhost\n";
  for (int host = 1; host <= hosts; ++host) {
    file << "127.0.1.1 host-" << host << "\n";
    // A thread of its own has the new namespace; this one keeps its network.
    absl::Status status;
    std::thread([&] { status = network->AddHost(host); }).join();
    ELASTICDL_RETURN_IF_ERROR(status);
  }
  network->stop_ = Fd(eventfd(0, EFD_CLOEXEC));
  network->carrier_ = std::thread([&raw = *network] { raw.Carry(); });
  return network;
}

absl::Status Network::AddHost(int host) {
  if (unshare(CLONE_NEWNET) != 0) {
    return ErrnoToStatus(errno, "make a network namespace");
  }
  Host& made = hosts_[static_cast<size_t>(host)];
  made.name_space = Fd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  made.device = Fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!made.device.valid()) return ErrnoToStatus(errno, "open /dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  strncpy(request.ifr_name, "eth0", sizeof(request.ifr_name) - 1);
  if (ioctl(made.device.get(), TUNSETIFF, &request) != 0) {
    return ErrnoToStatus(errno, "make a network device");
  }
  const std::string commands =
      absl::StrCat("ip link set lo up && ip address add ", Address(host),
                   "/16 dev eth0 && ip address add ", OtherAddress(host),
                   "/16 dev eth0 && ip link set eth0 up");
  // The child is in the namespace of this thread.
  if (system(commands.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("'", commands, "' failed"));
  }
  return absl::OkStatus();
}

Network::~Network() {
  if (!carrier_.joinable()) return;
  const uint64_t one = 1;
  ELASTICDL_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  carrier_.join();
}

std::vector<std::string> Network::OnHost(
    int host, const std::vector<std::string>& argv) const {
  const Host& on = hosts_[static_cast<size_t>(host)];
  std::vector<std::string> all = {
      "/usr/bin/nsenter",
      absl::StrCat("--net=/proc/", getpid(), "/fd/", on.name_space.get()),
      "/usr/bin/unshare",
      "--mount",
      "--uts",
      "/bin/sh",
      "-c",
      absl::StrCat("mount -t tmpfs tmpfs /dev/shm && mount --bind ",
                   hosts_file_, " /etc/hosts && hostname host-", host,
                   " && exec \"$@\""),
      "sh"};
  all.insert(all.end(), argv.begin(), argv.end());
  return all;
}

void Network::Set(int from, int to, const Path& path) {
  MutexLock lock(mu_);
  paths_[{from, to}] = path;
}

void Network::SetAll(const Path& path) {
  for (size_t from = 1; from < hosts_.size(); ++from) {
    for (size_t to = 1; to < hosts_.size(); ++to) {
      Set(static_cast<int>(from), static_cast<int>(to), path);
    }
  }
}

void Network::CutFrom(int host) {
  Path cut;
  cut.cut = true;
  for (size_t to = 1; to < hosts_.size(); ++to) {
    Set(host, static_cast<int>(to), cut);
  }
}

void Network::CutTo(int host) {
  Path cut;
  cut.cut = true;
  for (size_t from = 1; from < hosts_.size(); ++from) {
    Set(static_cast<int>(from), host, cut);
  }
}

void Network::Carry() {
  while (true) {
    const absl::Time next = Deliver();
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    for (size_t host = 1; host < hosts_.size(); ++host) {
      fds.push_back({hosts_[host].device.get(), POLLIN, 0});
    }
    const timespec timeout =
        absl::ToTimespec(std::max(next - absl::Now(), absl::ZeroDuration()));
    ppoll(fds.data(), fds.size(),
          next == absl::InfiniteFuture() ? nullptr : &timeout, nullptr);
    if (fds[0].revents != 0) return;
    for (size_t host = 1; host < hosts_.size(); ++host) {
      if (fds[host].revents != 0) Receive(static_cast<int>(host));
    }
  }
}

void Network::Receive(int from) {
  char buffer[kPacketBytes];
  const int device = hosts_[static_cast<size_t>(from)].device.get();
  ssize_t size;
  while ((size = read(device, buffer, sizeof(buffer))) > 0) {
    // IPv4 to 10.77.?.x; all else is chatter of the kernel.
    if (size < 20 || (buffer[0] >> 4) != 4) continue;
    const auto to = static_cast<int>(static_cast<unsigned char>(buffer[19]));
    if (to < 1 || to >= static_cast<int>(hosts_.size())) continue;
    Path path;
    {
      MutexLock lock(mu_);
      path = paths_[{from, to}];
    }
    if (path.cut ||
        std::uniform_real_distribution<>(0, 1)(random_) < path.loss) {
      continue;
    }
    under_way_.emplace(absl::Now() + path.delay,
                       Packet{to, std::string(buffer, size)});
  }
}

absl::Time Network::Deliver() {
  while (!under_way_.empty()) {
    const auto first = under_way_.begin();
    if (first->first > absl::Now()) return first->first;
    const Packet& packet = first->second;
    // A full device drops the packet, as networks do.
    if (write(hosts_[static_cast<size_t>(packet.to)].device.get(),
              packet.bytes.data(), packet.bytes.size()) < 0) {
    }
    under_way_.erase(first);
  }
  return absl::InfiniteFuture();
}

}  // namespace elasticdl::test
