#include "elasticdl/common/swift.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace elasticdl {
namespace {

// The shortest that the kernel takes.
constexpr uint64_t kTurnNanos = 100000;
constexpr uint64_t kResetOnFork = 1;
// A tenth of what others get: with less, the end of the process, for which its
// replacement and the locks of its files wait, would take seconds.
constexpr int kLittle = 10;

// The kernel's first version of it; the C library has none.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  // The length of a turn.
  uint64_t runtime = 0;
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(Attributes) == 48);

// Of this thread. Nothing if it does not share the cores with others as usual.
std::optional<Attributes> Get() {
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 ||
      attributes.policy != SCHED_OTHER) {
    return std::nullopt;
  }
  attributes.size = sizeof(attributes);
  return attributes;
}

void SetTurns(Attributes attributes, uint64_t nanos, uint64_t flags) {
  attributes.runtime = nanos;
  attributes.flags = flags;
  // Without it, this thread runs a little later.
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void BeSwift() {
  const std::optional<Attributes> own = Get();
  if (own.has_value()) SetTurns(*own, kTurnNanos, kResetOnFork);
}

void LetOthersRun(pid_t killed) {
  // The folder stays that of this process, whoever gets its number.
  DIR* const threads = opendir(absl::StrCat("/proc/", killed, "/task").c_str());
  if (threads == nullptr) return;
  while (const dirent* entry = readdir(threads)) {
    pid_t thread = 0;
    // The last one to end gives the memory back; it may be any of them.
    if (absl::SimpleAtoi(entry->d_name, &thread) &&
        getpriority(PRIO_PROCESS, static_cast<id_t>(thread)) < kLittle) {
      setpriority(PRIO_PROCESS, static_cast<id_t>(thread), kLittle);
    }
  }
  closedir(threads);
}

StartSwiftThreads::StartSwiftThreads() {
  const std::optional<Attributes> own = Get();
  // The heirs of a thread that BeSwift was called for would not be swift.
  if (!own.has_value() || (own->flags & kResetOnFork) != 0) return;
  before_ = own->runtime;
  SetTurns(*own, kTurnNanos, own->flags);
}

StartSwiftThreads::~StartSwiftThreads() {
  if (before_ == 0) return;
  const std::optional<Attributes> own = Get();
  if (own.has_value()) SetTurns(*own, before_, own->flags);
}

}  // namespace elasticdl
