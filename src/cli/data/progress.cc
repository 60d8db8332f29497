// Progress and numbers for people.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "data/data_commands.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr absl::Duration kRedraw = absl::Milliseconds(100);

}  // namespace

int DataFailed(const absl::Status& status) {
  std::cerr << "elasticdl data: " << status.message() << "\n";
  return 1;
}

std::string FormatBytes(double bytes) {
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (bytes < 1000) {
      return absl::StrFormat("%.*f %s", unit[1] == '\0' ? 0 : 1, bytes, unit);
    }
    bytes /= 1000;
  }
  return absl::StrFormat("%.1f TB", bytes);
}

ProgressBar::ProgressBar(std::string title, std::string unit)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) == 1),
      started_(Clock::Real().Now()),
      last_drawn_(absl::InfinitePast()) {}

void ProgressBar::set_title(const std::string& title) {
  if (title == title_) return;
  Finish();
  title_ = title;
  last_tenth_ = 0;
  started_ = Clock::Real().Now();
  last_drawn_ = absl::InfinitePast();
}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (terminal_) {
    const absl::Time now = Clock::Real().Now();
    if (now - last_drawn_ < kRedraw && done != total) return;
    last_drawn_ = now;
    DrawBar(done, total);
    return;
  }
  const int64_t tenth = total > 0 ? done * 10 / total : 0;
  if (tenth <= last_tenth_) return;
  last_tenth_ = tenth;
  std::cerr << absl::StrFormat("%s: %d of %d %s\n", title_, done, total, unit_);
}

void ProgressBar::DrawBar(int64_t done, int64_t total) {
  const double seconds = absl::ToDoubleSeconds(Clock::Real().Now() - started_);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string bar;
  if (total > 0) {
    const auto filled = static_cast<size_t>(
        std::min<int64_t>(kBarWidth, done * kBarWidth / total));
    bar = absl::StrFormat(" [%s%s] %3d %%", std::string(filled, '#'),
                          std::string(kBarWidth - filled, '.'),
                          done * 100 / total);
  }
  std::cerr << absl::StrFormat("\r%s%s %d %s, %.0f/s\x1b[K", title_, bar, done,
                               unit_, rate)
            << std::flush;
  open_ = true;
}

void ProgressBar::Finish() {
  if (open_) std::cerr << "\n";
  open_ = false;
}

}  // namespace elasticdl::cli
