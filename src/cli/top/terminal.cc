#include "top/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"

namespace elasticdl::cli {
namespace {

constexpr char kBegin[] = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr char kFinish[] = "\x1b[?25h\x1b[?1049l";

// Set by signals, which also interrupt the wait for a key.
std::atomic<bool> g_ended = false;
std::atomic<bool> g_resized = false;

void OnSignal(int signal) { (signal == SIGWINCH ? g_resized : g_ended) = true; }

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

}  // namespace

ScreenTerminal::ScreenTerminal() {
  g_ended = g_resized = false;
  has_before_ = tcgetattr(STDIN_FILENO, &before_) == 0;
  if (has_before_) {
    termios raw = before_;
    // Ctrl-C comes as a key, so that the screen is put back.
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGWINCH}) {
    Handle(signal, OnSignal);
  }
  WriteAll(STDOUT_FILENO, kBegin, "terminal").IgnoreError();
}

ScreenTerminal::~ScreenTerminal() {
  WriteAll(STDOUT_FILENO, kFinish, "terminal").IgnoreError();
  if (has_before_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  for (const int signal : {SIGTERM, SIGHUP, SIGINT, SIGWINCH}) {
    Handle(signal, SIG_DFL);
  }
}

Terminal::Size ScreenTerminal::size() {
  winsize now = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) != 0 || now.ws_col == 0 ||
      now.ws_row == 0) {
    return Size();
  }
  return {now.ws_col, now.ws_row};
}

void ScreenTerminal::Draw(const std::vector<std::string>& lines) {
  std::string text;
  const Size now = size();
  if (now.columns != shown_size_.columns || now.rows != shown_size_.rows) {
    shown_.clear();
    shown_size_ = now;
    text = "\x1b[2J";
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < shown_.size() && shown_[i] == lines[i]) continue;
    absl::StrAppend(&text, "\x1b[", i + 1, ";1H", lines[i], "\x1b[K");
  }
  shown_ = lines;
  if (!text.empty()) WriteAll(STDOUT_FILENO, text, "terminal").IgnoreError();
}

std::optional<int> ScreenTerminal::NextKey() {
  if (input_.empty()) return std::nullopt;
  if (absl::StartsWith(input_, "\x1b[") && input_.size() >= 3) {
    const char last = input_[2];
    input_.erase(0, 3);
    if (last == 'A') return kUp;
    if (last == 'B') return kDown;
    return kEscape;
  }
  const int key = static_cast<unsigned char>(input_[0]);
  input_.erase(0, 1);
  if (key == 3 || key == 4) return kEnd;
  if (key == '\n') return kEnter;
  if (key == 8) return kBackspace;
  return key;
}

std::optional<int> ScreenTerminal::ReadKey(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  while (true) {
    if (const auto key = NextKey()) return key;
    if (g_ended) return kEnd;
    if (g_resized.exchange(false)) return kResized;
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    pollfd fd = {STDIN_FILENO, POLLIN, 0};
    const int ready =
        poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready <= 0) continue;
    char buffer[64];
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n <= 0) return kEnd;
    input_.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace elasticdl::cli
