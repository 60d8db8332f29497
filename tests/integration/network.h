// A network of hosts inside this process: each host is a network namespace with
// one device, and a thread carries the packets between them as the test
// demands. Needs no netem and no iptables, only root and /dev/net/tun.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::test {

// Thread-safe. Host i (from 1) has the addresses 10.77.0.i and 10.77.1.i and
// the name host-i, which is 127.0.1.1 as on a new Debian system.
class Network {
 public:
  // What happens to packets from one host to another.
  struct Path {
    bool cut = false;
    double loss = 0;  // Part of the packets.
    absl::Duration delay;
  };

  // An error says what this machine lacks. `folder` holds small files.
  static absl::StatusOr<std::unique_ptr<Network>> Create(
      int hosts, const std::string& folder, uint32_t seed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  static std::string Address(int host);
  static std::string OtherAddress(int host);
  // The command that runs `argv` on a host: with its network, its name, and
  // shared memory of its own. The process keeps its id.
  std::vector<std::string> OnHost(int host,
                                  const std::vector<std::string>& argv) const;

  void Set(int from, int to, const Path& path);
  // Between all hosts, both ways.
  void SetAll(const Path& path);
  // All that a host sends, or all that it should receive.
  void CutFrom(int host);
  void CutTo(int host);

 private:
  struct Host {
    Fd name_space;
    Fd device;
  };
  struct Packet {
    int to = 0;
    std::string bytes;
  };

  Network(const std::string& folder, uint32_t seed)
      : hosts_file_(folder + "/hosts"), random_(seed) {}
  absl::Status AddHost(int host);
  void Carry();
  void Receive(int from);
  // Delivers what is due; when the next will be.
  absl::Time Deliver();

  const std::string hosts_file_;
  std::vector<Host> hosts_;  // By number; [0] is nobody.
  Fd stop_;

  Mutex mu_;
  std::map<std::pair<int, int>, Path> paths_ ABSL_GUARDED_BY(mu_);

  // Used by the carrier only.
  std::mt19937 random_;
  std::multimap<absl::Time, Packet> under_way_;
  std::thread carrier_;
};

}  // namespace elasticdl::test
