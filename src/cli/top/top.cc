#include "top/top.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"

namespace elasticdl::cli {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr char kKeys[] =
    " q quit  s scale  l log  k kill  up/down choose  +/- lanes";
// The lanes show at least and at most so much.
constexpr double kShortest = 30;
constexpr double kLongest = 86400;

class Top {
 public:
  Top(JobHandle& job, Terminal& terminal, const TopOptions& options)
      : job_(job), terminal_(terminal), options_(options) {
    view_.color = options.color;
    view_.unicode = options.unicode;
  }

  absl::Status Run();

 private:
  enum class Mode { kList, kScale, kKill, kLog };

  absl::Status Update();
  void Draw();
  // False: the end.
  bool OnKey(int key);
  bool OnListKey(int key);
  void OnScaleKey(int key);
  void OnKillKey(int key);
  void BeginKill();
  void ReadLog();
  const TopModel::Pod* chosen() const {
    return view_.chosen < model_.pods().size() ? &model_.pods()[view_.chosen]
                                               : nullptr;
  }
  static std::string NameOf(const TopModel::Pod& pod) {
    return absl::StrCat(pod.server ? "server " : "worker ", pod.id);
  }

  JobHandle& job_;
  Terminal& terminal_;
  const TopOptions& options_;
  TopModel model_;
  TopView view_;
  Mode mode_ = Mode::kList;
  // What was typed so far.
  std::string typed_;
  // What came of the last key; shown until the next.
  std::string message_;
  TopModel::Pod victim_;
  std::string log_;
};

absl::Status Top::Run() {
  while (true) {
    ELASTICDL_RETURN_IF_ERROR(Update());
    const absl::Time next = Clock::Real().Now() + kPeriod;
    while (true) {
      Draw();
      const absl::Duration left = next - Clock::Real().Now();
      if (left <= absl::ZeroDuration()) break;
      const std::optional<int> key = terminal_.ReadKey(left);
      if (!key.has_value()) break;
      if (!OnKey(*key)) return absl::OkStatus();
    }
    if (job_.WaitEnd(absl::ZeroDuration())) return absl::OkStatus();
  }
}

absl::Status Top::Update() {
  const auto answer = job_.Get(absl::StrCat("update?since=", model_.cursor()));
  // It may be ending; then the loop ends, too.
  if (!answer.ok()) {
    return job_.WaitEnd(kPeriod) ? absl::OkStatus() : answer.status();
  }
  ELASTICDL_RETURN_IF_ERROR(model_.Add(*answer));
  const size_t pods = model_.pods().size();
  view_.chosen = pods == 0 ? 0 : std::min(view_.chosen, pods - 1);
  if (mode_ == Mode::kLog) ReadLog();
  return absl::OkStatus();
}

void Top::Draw() {
  const Terminal::Size size = terminal_.size();
  view_.columns = size.columns;
  view_.rows = size.rows;
  const size_t room = PodRows(view_);
  if (view_.chosen < view_.first) view_.first = view_.chosen;
  if (view_.chosen >= view_.first + room) {
    view_.first = view_.chosen - room + 1;
  }
  switch (mode_) {
    case Mode::kList:
      view_.footer = message_.empty() ? kKeys : absl::StrCat(" ", message_);
      break;
    case Mode::kScale:
      view_.footer =
          absl::StrCat(" number of workers (Enter, Esc): ", typed_, "_");
      break;
    case Mode::kKill:
      view_.footer = absl::StrCat(" kill ", NameOf(victim_), " (pid ",
                                  victim_.pid, ")? y/n");
      break;
    case Mode::kLog:
      view_.footer = " any key: back";
      break;
  }
  if (mode_ == Mode::kLog && chosen() != nullptr) {
    terminal_.Draw(
        RenderLog(absl::StrCat("log of ", chosen()->name), log_, view_));
  } else {
    terminal_.Draw(RenderTop(model_, view_));
  }
}

bool Top::OnKey(int key) {
  if (key == Terminal::kEnd) return false;
  if (key == Terminal::kResized) return true;
  message_.clear();
  switch (mode_) {
    case Mode::kList:
      return OnListKey(key);
    case Mode::kScale:
      OnScaleKey(key);
      break;
    case Mode::kKill:
      OnKillKey(key);
      break;
    case Mode::kLog:
      mode_ = Mode::kList;
      break;
  }
  return true;
}

bool Top::OnListKey(int key) {
  switch (key) {
    case 'q':
      return false;
    case 's':
      mode_ = Mode::kScale;
      typed_.clear();
      break;
    case 'k':
      BeginKill();
      break;
    case 'l':
      if (chosen() == nullptr) break;
      mode_ = Mode::kLog;
      ReadLog();
      break;
    case Terminal::kUp:
      if (view_.chosen > 0) --view_.chosen;
      break;
    case Terminal::kDown:
      if (view_.chosen + 1 < model_.pods().size()) ++view_.chosen;
      break;
    case '+':
      view_.window = std::max(kShortest, view_.window / 2);
      break;
    case '-':
      view_.window = std::min(kLongest, view_.window * 2);
      break;
    default:
      break;
  }
  return true;
}

void Top::OnScaleKey(int key) {
  if (key == Terminal::kEscape) {
    mode_ = Mode::kList;
  } else if (key == Terminal::kBackspace) {
    if (!typed_.empty()) typed_.pop_back();
  } else if (key == Terminal::kEnter) {
    mode_ = Mode::kList;
    int64_t workers = 0;
    if (!absl::SimpleAtoi(typed_, &workers) || workers < 1) {
      message_ = "the number must be at least 1";
      return;
    }
    const absl::Status status = job_.Scale(workers, 0);
    message_ = status.ok()
                   ? absl::StrCat("scaling to ", Count(workers, "worker"))
                   : std::string(status.message());
  } else if (key < 128 &&
             absl::ascii_isdigit(static_cast<unsigned char>(key)) &&
             typed_.size() < 6) {
    typed_ += static_cast<char>(key);
  }
}

void Top::BeginKill() {
  if (chosen() == nullptr) return;
  if (chosen()->pid <= 0) {
    message_ = absl::StrCat("not on this machine: kubectl delete pod ",
                            chosen()->name);
    return;
  }
  // The list may change before the answer.
  victim_ = *chosen();
  mode_ = Mode::kKill;
}

void Top::OnKillKey(int key) {
  mode_ = Mode::kList;
  if (key != 'y') {
    message_ = "nothing was killed";
    return;
  }
  // A pid is used again: it must still be that of the pod.
  const auto& pods = model_.pods();
  const bool there =
      std::any_of(pods.begin(), pods.end(), [&](const TopModel::Pod& pod) {
        return pod.name == victim_.name && pod.pid == victim_.pid;
      });
  const absl::Status status = there
                                  ? options_.kill(victim_.pid)
                                  : absl::NotFoundError("it has already ended");
  message_ = status.ok() ? absl::StrCat("killed ", NameOf(victim_))
                         : std::string(status.message());
}

void Top::ReadLog() {
  if (chosen() == nullptr) return;
  auto log = job_.Get(absl::StrCat("log?pod=", chosen()->name));
  log_ = log.ok() ? *std::move(log) : std::string(log.status().message());
}

}  // namespace

absl::Status WatchTop(JobHandle& job, Terminal& terminal,
                      const TopOptions& options) {
  return Top(job, terminal, options).Run();
}

}  // namespace elasticdl::cli
