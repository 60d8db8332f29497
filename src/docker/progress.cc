#include "elasticdl/docker/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace elasticdl::docker {
namespace {

// Leaves room for "0123456789ab: Pushing " and the sizes in 80 columns.
constexpr int kBarCells = 28;
constexpr char kEraseLine[] = "\x1b[2K\r";

// Without colours and other control sequences ("\x1b[91m"), which the engine
// puts around what commands write to stderr.
std::string Plain(absl::string_view text) {
  std::string result;
  while (!text.empty()) {
    if (!absl::ConsumePrefix(&text, "\x1b[")) {
      result += text[0];
      text.remove_prefix(1);
      continue;
    }
    // Parameters up to the letter that ends it.
    while (!text.empty() && (text[0] < '@' || text[0] > '~')) {
      text.remove_prefix(1);
    }
    if (!text.empty()) text.remove_prefix(1);
  }
  return result;
}

}  // namespace

std::string FormatSize(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%.1f %s", value, units[unit]);
}

std::string FormatTransfer(int64_t current, int64_t total) {
  if (total <= 0) return FormatSize(current);
  // Totals are estimates: more than 100 % must not break the line.
  const int64_t done = std::min(current, total);
  const int cells =
      static_cast<int>(static_cast<double>(kBarCells) *
                       static_cast<double>(done) / static_cast<double>(total));
  std::string bar(static_cast<size_t>(cells), '=');
  if (cells < kBarCells) bar += '>';
  bar.resize(kBarCells, ' ');
  return absl::StrCat("[", bar, "] ", FormatSize(current), " / ",
                      FormatSize(total));
}

ProgressDisplay::ProgressDisplay(bool terminal, Write write)
    : terminal_(terminal), write_(std::move(write)) {}

void ProgressDisplay::Show(const Progress& progress) {
  if (!progress.id.empty()) {
    ShowLayer(progress);
    return;
  }
  std::string text = terminal_ ? progress.text : Plain(progress.text);
  if (text.empty() && !progress.status.empty()) {
    text = absl::StrCat(at_line_start_ ? "" : "\n", progress.status, "\n");
  }
  if (text.empty()) return;
  // The text scrolls the layers' lines away: they cannot be redrawn any more.
  lines_.clear();
  at_line_start_ = text.back() == '\n';
  write_(text);
}

void ProgressDisplay::ShowLayer(const Progress& progress) {
  const bool counts = progress.current > 0;
  if (!terminal_) {
    std::string& shown = shown_[progress.id];
    if (shown == progress.status) return;
    shown = progress.status;
    write_(absl::StrCat(at_line_start_ ? "" : "\n", progress.id, ": ",
                        progress.status, "\n"));
    at_line_start_ = true;
    return;
  }
  std::string text = absl::StrCat(progress.id, ": ", progress.status);
  if (counts) {
    absl::StrAppend(&text, " ",
                    FormatTransfer(progress.current, progress.total));
  }
  const auto [it, is_new] =
      lines_.try_emplace(progress.id, static_cast<int>(lines_.size()));
  if (is_new) {
    write_(absl::StrCat(at_line_start_ ? "" : "\n", text, "\n"));
    at_line_start_ = true;
  } else {
    Redraw(it->second, text);
  }
}

void ProgressDisplay::Redraw(int line, absl::string_view text) {
  const int up = static_cast<int>(lines_.size()) - line;
  write_(absl::StrCat("\x1b[", up, "A", kEraseLine, text, "\r\x1b[", up, "B"));
}

}  // namespace elasticdl::docker
