#include "progress_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::master {
namespace {

constexpr int kBarWidth = 20;
// Carriage return, clear to the end of the line.
constexpr absl::string_view kClearLine = "\r\x1b[K";

double Fraction(const Progress& progress) {
  if (progress.records_total <= 0) return 0;
  return std::clamp(static_cast<double>(progress.records_done) /
                        static_cast<double>(progress.records_total),
                    0.0, 1.0);
}

std::string Bar(double fraction) {
  const int full = static_cast<int>(fraction * kBarWidth);
  std::string bar(kBarWidth, ' ');
  std::fill_n(bar.begin(), full, '=');
  if (full < kBarWidth) bar[static_cast<size_t>(full)] = '>';
  return absl::StrCat("[", bar, "]");
}

std::string Epoch(const Progress& progress) {
  if (progress.phase != "train") return progress.phase;
  if (progress.num_epochs <= 0) return absl::StrCat("epoch ", progress.epoch);
  return absl::StrCat("epoch ", progress.epoch, "/", progress.num_epochs);
}

std::string Eta(const Progress& progress) {
  const auto left =
      static_cast<double>(progress.records_total - progress.records_done);
  if (progress.records_total <= 0 || progress.records_per_s <= 0 || left < 0) {
    return "";
  }
  return absl::StrCat(
      "ETA ", ShortDuration(absl::Seconds(left / progress.records_per_s)));
}

// Control characters of a message must not move the cursor.
std::string Printable(absl::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (absl::ascii_iscntrl(c) && c != '\n' && c != '\t') c = ' ';
  }
  while (!clean.empty() && clean.back() == '\n') clean.pop_back();
  return clean;
}

}  // namespace

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "?";
  // Of a slow job 0.0 would say nothing.
  if (value > 0 && value < 0.1) return absl::StrFormat("%.2f", value);
  if (value < 10) return absl::StrFormat("%.1f", value);
  if (value < 1000) return absl::StrFormat("%.0f", value);
  if (value < 999950) return absl::StrFormat("%.1fk", value / 1e3);
  return absl::StrFormat("%.1fM", value / 1e6);
}

std::string ShortDuration(absl::Duration duration) {
  // Too long to be useful as a number.
  if (duration > absl::Hours(24 * 365)) return "?";
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Seconds(0.5));
  if (seconds >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60,
                           seconds % 60);
  }
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

std::string RenderProgress(const Progress& progress, int columns,
                           bool with_bar) {
  const bool works = progress.activity.empty();
  std::string activity;
  if (!works) {
    // A line that stays would be another one every second.
    const bool timed = with_bar && progress.activity_time >= absl::Seconds(1);
    activity =
        absl::StrCat("(", progress.activity, timed ? ", " : "",
                     timed ? ShortDuration(progress.activity_time) : "", ")");
  }
  // What goes on says more than the bar when there is no room for both.
  constexpr size_t kBesideActivity = 56;
  if (columns > 0 &&
      activity.size() + kBesideActivity > static_cast<size_t>(columns)) {
    with_bar = with_bar && works;
  }
  std::vector<std::string> parts = {Epoch(progress)};
  if (progress.records_total > 0) {
    const double fraction = Fraction(progress);
    if (with_bar) parts.push_back(Bar(fraction));
    // Rounded down: 100% means done.
    parts.push_back(absl::StrFormat("%3d%%", static_cast<int>(fraction * 100)));
  }
  if (progress.phase == "train") {
    parts.push_back(absl::StrCat("step ", progress.step));
  }
  parts.push_back(
      works ? absl::StrCat(ShortNumber(progress.records_per_s), " rec/s")
            : activity);
  if (works && progress.loss.has_value()) {
    parts.push_back(absl::StrFormat("loss %.4g", *progress.loss));
  }
  parts.push_back(
      absl::StrCat("workers ", progress.workers, "/", progress.target_workers));
  if (progress.generation > 0) {
    parts.push_back(absl::StrCat("gen ", progress.generation));
  }
  if (const std::string eta = Eta(progress); works && !eta.empty()) {
    parts.push_back(eta);
  }
  std::string line;
  for (const std::string& part : parts) {
    const size_t length = line.size() + (line.empty() ? 0 : 1) + part.size();
    if (columns > 0 && length > static_cast<size_t>(columns)) break;
    absl::StrAppend(&line, line.empty() ? "" : " ", part);
  }
  return line;
}

std::string ProgressToJson(const Progress& progress) {
  nlohmann::ordered_json json = {{"phase", progress.phase},
                                 {"epoch", progress.epoch},
                                 {"num_epochs", progress.num_epochs},
                                 {"step", progress.step},
                                 {"records_done", progress.records_done},
                                 {"records_total", progress.records_total},
                                 {"records_per_s", progress.records_per_s},
                                 {"workers", progress.workers},
                                 {"target_workers", progress.target_workers},
                                 {"generation", progress.generation}};
  if (progress.loss.has_value()) json["loss"] = *progress.loss;
  if (!progress.activity.empty()) json["activity"] = progress.activity;
  return JsonText(json);
}

ProgressDisplay::Mode ProgressDisplay::DetectMode(int fd,
                                                  const std::string& term) {
  const bool live = isatty(fd) == 1 && !term.empty() && term != "dumb";
  return live ? Mode::kLive : Mode::kPlain;
}

ProgressDisplay::ProgressDisplay(Options options) : options_(options) {}

ProgressDisplay::~ProgressDisplay() {
  if (line_shown_) Write("\n");
}

void ProgressDisplay::Update(const Progress& progress, absl::Time now) {
  progress_ = progress;
  changed_ = true;
  Tick(now);
}

void ProgressDisplay::Tick(absl::Time now) {
  if (now < next_wake()) return;
  if (options_.mode == Mode::kLive) {
    DrawLive(now);
    return;
  }
  const std::string line = Line();
  // The activity is printed once.
  if (progress_.activity.empty() || line != last_line_) {
    Write(absl::StrCat(line, "\n"));
  }
  last_line_ = line;
  changed_ = false;
  last_drawn_ = now;
}

absl::Time ProgressDisplay::next_wake() const {
  if (finished_ || !changed_ || options_.mode == Mode::kNone) {
    return absl::InfiniteFuture();
  }
  return last_drawn_ + (options_.mode == Mode::kLive ? options_.redraw_interval
                                                     : options_.plain_interval);
}

void ProgressDisplay::Message(absl::string_view text, absl::Time now) {
  const bool redraw = line_shown_;
  if (options_.mode == Mode::kJson) {
    const nlohmann::json message = {{"message", Printable(text)}};
    Write(absl::StrCat(JsonText(message), "\n"));
    return;
  }
  Write(absl::StrCat(redraw ? kClearLine : "", Printable(text), "\n"));
  line_shown_ = false;
  if (redraw) DrawLive(now);
}

void ProgressDisplay::Finish(absl::Time now) {
  if (finished_) return;
  finished_ = true;
  if (options_.mode == Mode::kNone) return;
  // A job that ends before its first record has nothing to show but why.
  const bool nothing =
      progress_.records_done == 0 && progress_.records_per_s <= 0;
  if (options_.mode == Mode::kLive) {
    if (!nothing) DrawLive(now);
    if (line_shown_) Write(nothing ? kClearLine : "\n");
    line_shown_ = false;
  } else if (!nothing || options_.mode == Mode::kJson) {
    Write(absl::StrCat(Line(), "\n"));
  }
}

std::string ProgressDisplay::Line() const {
  return options_.mode == Mode::kJson ? ProgressToJson(progress_)
                                      : RenderProgress(progress_, 0, false);
}

void ProgressDisplay::DrawLive(absl::Time now) {
  // One column stays free: some terminals wrap when the last one is filled.
  const int columns = std::max(Columns() - 1, 10);
  Write(absl::StrCat(kClearLine, RenderProgress(progress_, columns, true)));
  line_shown_ = true;
  changed_ = false;
  last_drawn_ = now;
}

int ProgressDisplay::Columns() const {
  winsize size = {};
  if (ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

void ProgressDisplay::Write(absl::string_view text) {
  WriteAll(options_.fd, text, "progress").IgnoreError();
}

}  // namespace elasticdl::master
