#include "elasticdl/common/failpoint.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/end_as_killed.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl {
namespace {

enum class Action { kError, kKill, kStop, kExit, kDelay };

struct Armed {
  // -1: any.
  int64_t worker_id = -1;
  Action action = Action::kError;
  // The code of kExit, the milliseconds of kDelay.
  int argument = 0;
  int64_t first = 1;
  int64_t count = std::numeric_limits<int64_t>::max();
  int64_t visits = 0;
};

struct Registry {
  Mutex mu;
  std::map<std::string, Armed, std::less<>> armed ABSL_GUARDED_BY(mu);
};

Registry& GetRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

absl::Status BadSpec(absl::string_view part) {
  return absl::InvalidArgumentError(absl::StrCat(
      "failpoint '", part, "': expected [worker:]name=action[@first][xcount], ",
      "action one of error, kill, stop, exit(code), delay(ms)"));
}

// `text` is "name(number)".
bool IsCall(absl::string_view text, absl::string_view name, int& number) {
  return absl::ConsumePrefix(&text, name) && absl::ConsumePrefix(&text, "(") &&
         absl::ConsumeSuffix(&text, ")") && absl::SimpleAtoi(text, &number);
}

// Removes `separator` and the positive number after it from the end of `text`.
bool TakeNumber(char separator, absl::string_view& text, int64_t& value) {
  const size_t at = text.rfind(separator);
  // "exit(3)" contains an x itself: only a suffix of digits counts.
  if (at == absl::string_view::npos || at + 1 == text.size() ||
      text.find_first_not_of("0123456789", at + 1) != text.npos) {
    return true;
  }
  if (!absl::SimpleAtoi(text.substr(at + 1), &value) || value < 1) return false;
  text = text.substr(0, at);
  return true;
}

absl::StatusOr<std::pair<std::string, Armed>> ParseOne(absl::string_view part) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  absl::string_view name = halves.first;
  absl::string_view action = halves.second;
  Armed armed;
  if (const size_t colon = name.find(':'); colon != name.npos) {
    if (!absl::SimpleAtoi(name.substr(0, colon), &armed.worker_id) ||
        armed.worker_id < 0) {
      return BadSpec(part);
    }
    name.remove_prefix(colon + 1);
  }
  if (name.empty() || !TakeNumber('x', action, armed.count) ||
      !TakeNumber('@', action, armed.first)) {
    return BadSpec(part);
  }
  if (action == "error") {
    armed.action = Action::kError;
  } else if (action == "kill") {
    armed.action = Action::kKill;
  } else if (action == "stop") {
    armed.action = Action::kStop;
  } else if (IsCall(action, "exit", armed.argument)) {
    armed.action = Action::kExit;
  } else if (IsCall(action, "delay", armed.argument) && armed.argument >= 0) {
    armed.action = Action::kDelay;
  } else {
    return BadSpec(part);
  }
  return std::make_pair(std::string(name), armed);
}

}  // namespace

namespace internal {

std::atomic<bool> failpoints_armed{false};

absl::Status VisitFailpoint(absl::string_view name) {
  Armed hit;
  {
    Registry& registry = GetRegistry();
    MutexLock lock(registry.mu);
    auto found = registry.armed.find(name);
    if (found == registry.armed.end()) return absl::OkStatus();
    Armed& armed = found->second;
    const int64_t visit = ++armed.visits;
    if (visit < armed.first || visit - armed.first >= armed.count) {
      return absl::OkStatus();
    }
    hit = armed;
  }
  switch (hit.action) {
    case Action::kError:
      return absl::UnavailableError(absl::StrCat("failpoint ", name));
    case Action::kKill:
      EndAsKilled();
    case Action::kStop:
      // Signal this thread: a signal to the process may stop another thread
      // first, and this one would continue for a moment.
      raise(SIGSTOP);
      break;
    case Action::kExit:
      _exit(hit.argument);
    case Action::kDelay:
      poll(nullptr, 0, hit.argument);
      break;
  }
  return absl::OkStatus();
}

}  // namespace internal

absl::Status InitFailpoints(absl::string_view text, int64_t worker_id) {
  std::map<std::string, Armed, std::less<>> armed;
  for (absl::string_view part : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    auto one = ParseOne(part);
    if (!one.ok()) return one.status();
    if (one->second.worker_id >= 0 && one->second.worker_id != worker_id) {
      continue;
    }
    armed.insert(*std::move(one));
  }
  Registry& registry = GetRegistry();
  MutexLock lock(registry.mu);
  internal::failpoints_armed = !armed.empty();
  registry.armed = std::move(armed);
  return absl::OkStatus();
}

}  // namespace elasticdl
