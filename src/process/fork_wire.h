// The messages between the two ends of a fork server, one per packet of a
// SOCK_SEQPACKET socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace elasticdl::process {

// The server's first argument, with the number of its end of the socket.
constexpr char kForkServerFlag[] = "--fork_server_fd=";

// Answer to a request.
struct ForkAnswer {
  uint64_t request;
  // 0: `error` says why there is none.
  int32_t pid;
  int32_t error;
};

// A request; the file for standard output and error comes with it.
struct ForkRequest {
  uint64_t request = 0;
  // Whose child the process must become; 0: of the server's parent.
  int32_t parent = 0;
  std::vector<std::string> argv;
  std::vector<std::string> environment;
};

// About what the kernel lets through in one packet by default.
constexpr size_t kMostForkBytes = 256 << 10;

// Numbers, then all strings with their terminating zero.
std::string EncodeForkRequest(const ForkRequest& request);
// False when `bytes` are none.
bool DecodeForkRequest(const std::string& bytes, ForkRequest* request);

}  // namespace elasticdl::process
