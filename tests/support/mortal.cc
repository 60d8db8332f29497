// A process to be killed: with a sentinel, a TCP connection and memory, which
// the kernel frees first.
//
//   elasticdl_mortal PORT MEGABYTES
//
// Connects to the port of this host, sends its number (pid_t) and waits. Ends
// in order when it is sent something.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "elasticdl/common/life_sign.h"
#include "elasticdl/sentinel.h"

int main(int argc, char** argv) {
  if (!elasticdl::process::StartSentinel().ok()) return 3;
  int port = 0;
  size_t megabytes = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &port) ||
      !absl::SimpleAtoi(argv[2], &megabytes)) {
    return 2;
  }
  if (!elasticdl::OwnLifeSign().ok()) return 4;
  const size_t bytes = megabytes << 20;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 5;
  // Many pages take long to free, a few huge ones do not.
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  std::memset(memory, 1, bytes);
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(connection, reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) != 0) {
    return 6;
  }
  const pid_t self = getpid();
  if (write(connection, &self, sizeof(self)) != sizeof(self)) return 7;
  char byte = 0;
  return read(connection, &byte, 1) == 1 ? 0 : 8;
}
