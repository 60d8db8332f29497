#include "segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>

namespace test_nccl {
namespace {

SharedState* Map(int fd) {
  void* const at = mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<SharedState*>(at);
}

}  // namespace

std::string Segment::Create() {
  // Open until this process ends: the others open it through /proc.
  const int fd = memfd_create("test nccl", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(SharedState)) != 0) return "";
  SharedState* const state = Map(fd);
  if (state == nullptr) return "";
  std::random_device random;
  state->token = (uint64_t{random()} << 32) | random();
  char name[64];
  std::snprintf(name, sizeof(name), "%d %d %016llx", getpid(), fd,
                static_cast<unsigned long long>(state->token));
  munmap(state, sizeof(SharedState));
  return name;
}

std::shared_ptr<Segment> Segment::Open(const std::string& name) {
  int pid = 0;
  int number = 0;
  unsigned long long token = 0;
  if (std::sscanf(name.c_str(), "%d %d %llx", &pid, &number, &token) != 3) {
    return nullptr;
  }
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  SharedState* const state = Map(fd);
  close(fd);
  if (state == nullptr) return nullptr;
  std::shared_ptr<Segment> segment(new Segment(state));
  return state->token == token ? segment : nullptr;
}

Segment::~Segment() { munmap(state_, sizeof(SharedState)); }

void Segment::Notify() {
  ++state_->changes;
  syscall(SYS_futex, &state_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

void Segment::Await(const std::function<bool()>& done) {
  for (;;) {
    const uint32_t seen = state_->changes;
    if (done()) return;
    // A death changes nothing here, so look again now and then.
    const timespec while_quiet = {0, 2000000};
    syscall(SYS_futex, &state_->changes, FUTEX_WAIT, seen, &while_quiet,
            nullptr, 0);
  }
}

bool IsDead(int pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return true;
  char state = 'Z';
  const int found = std::fscanf(file, "%*d (%*[^)]) %c", &state);
  std::fclose(file);
  return found != 1 || state == 'Z' || state == 'X';
}

}  // namespace test_nccl
