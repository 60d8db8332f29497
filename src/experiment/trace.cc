#include "elasticdl/experiment/trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "elasticdl/common/status.h"

namespace elasticdl::experiment {
namespace {

struct NamedKind {
  absl::string_view name;
  ActionKind kind;
};
constexpr NamedKind kKinds[] = {
    {"kill", ActionKind::kKill},
    {"preempt", ActionKind::kPreempt},
    {"stop", ActionKind::kStop},
    {"join", ActionKind::kJoin},
    {"leave", ActionKind::kLeave},
    {"workers", ActionKind::kWorkers},
    {"kill_server", ActionKind::kKillServer},
    {"servers", ActionKind::kServers},
};

// A process that is stopped without a length is stopped for so long.
constexpr double kStopSeconds = 5;
// More than anybody can want; bounds the memory for a tiny mtbf.
constexpr size_t kMaxActions = 100000;

// std::uniform_real_distribution may differ between libraries; a trace must
// not.
double Uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1.0p-53;
}

// Those with a step first: TraceDriver keeps the two kinds apart.
bool Earlier(const Action& a, const Action& b) {
  if ((a.step >= 0) != (b.step >= 0)) return a.step >= 0;
  return a.step >= 0 ? a.step < b.step : a.at < b.at;
}

absl::StatusOr<Action> ParseRow(const std::vector<std::string>& fields,
                                double speed) {
  if (fields.size() < 2 || fields.size() > 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected time,action[,count[,seconds]], found ",
                     fields.size(), " fields"));
  }
  Action action;
  ELASTICDL_ASSIGN_OR_RETURN(const double at, ParseSeconds(fields[0]));
  action.at = at / speed;
  ELASTICDL_ASSIGN_OR_RETURN(action.kind, ParseActionKind(fields[1]));
  if (fields.size() > 2 &&
      (!absl::SimpleAtoi(fields[2], &action.count) || action.count < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("count '", fields[2], "' is not a number from 1"));
  }
  if (action.kind == ActionKind::kStop) action.seconds = kStopSeconds;
  if (fields.size() > 3) {
    ELASTICDL_ASSIGN_OR_RETURN(const double seconds, ParseSeconds(fields[3]));
    action.seconds = seconds / speed;
  }
  return action;
}

}  // namespace

absl::string_view ActionName(ActionKind kind) {
  for (const NamedKind& one : kKinds) {
    if (one.kind == kind) return one.name;
  }
  return "";
}

absl::StatusOr<ActionKind> ParseActionKind(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const NamedKind& one : kKinds) {
    if (one.name == name) return one.kind;
    names.push_back(one.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown action '", name, "'; known: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<double> ParseSeconds(absl::string_view text) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds)) {
    absl::Duration duration;
    if (!absl::ParseDuration(text, &duration)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", text, "' is not a time such as 10s, 1.5m or 200ms"));
    }
    seconds = absl::ToDoubleSeconds(duration);
  }
  if (!std::isfinite(seconds) || seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the time '", text, "' is negative or endless"));
  }
  return seconds;
}

std::vector<Action> DrawActions(const TraceSpec& spec, uint64_t seed,
                                double horizon) {
  std::mt19937_64 random(seed);
  std::vector<Action> actions = spec.actions;
  if (spec.mtbf > 0) {
    // The mean of a Weibull distribution is scale * Gamma(1 + 1 / shape).
    const double scale = spec.mtbf / std::tgamma(1 + 1 / spec.shape);
    double at = 0;
    while (actions.size() < kMaxActions) {
      at += scale * std::pow(-std::log1p(-Uniform(random)), 1 / spec.shape);
      if (at >= horizon) break;
      Action action;
      action.kind = spec.kind;
      action.at = at;
      if (action.kind == ActionKind::kStop) action.seconds = kStopSeconds;
      actions.push_back(action);
    }
  }
  // For given actions, too: whom they hit follows from the seed.
  for (Action& action : actions) action.pick = Uniform(random);
  // What comes after the end of the run never happens.
  actions.erase(std::remove_if(actions.begin(), actions.end(),
                               [&](const Action& action) {
                                 return action.step < 0 && action.at >= horizon;
                               }),
                actions.end());
  std::stable_sort(actions.begin(), actions.end(), Earlier);
  return actions;
}

absl::StatusOr<std::vector<Action>> ParseTraceCsv(const std::string& file,
                                                  absl::string_view text,
                                                  double speed) {
  std::vector<Action> actions;
  int number = 0;
  bool header = true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields = absl::StrSplit(line, ',');
    for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
    const bool is_header = header && fields[0] == "time";
    header = false;
    if (is_header) continue;
    absl::StatusOr<Action> action = ParseRow(fields, speed);
    if (!action.ok()) {
      return Annotate(action.status(), absl::StrCat(file, ":", number));
    }
    if (actions.size() >= kMaxActions) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ":", number, ": more than ", kMaxActions, " actions"));
    }
    actions.push_back(*action);
  }
  if (actions.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", number, ": no actions in this trace"));
  }
  std::stable_sort(actions.begin(), actions.end(), Earlier);
  return actions;
}

std::string TraceCsv(const std::vector<Action>& actions) {
  std::string text = "time,action,count,seconds\n";
  for (const Action& action : actions) {
    if (action.step >= 0) continue;
    absl::StrAppend(&text, std::round(action.at * 1000) / 1000, ",",
                    ActionName(action.kind), ",", action.count, ",",
                    action.seconds, "\n");
  }
  return text;
}

}  // namespace elasticdl::experiment
