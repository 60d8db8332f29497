// The terminal of `elasticdl top`: a full screen, and keys.
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace elasticdl::cli {

// What the loop of `top` needs of a terminal; tests have one of their own.
class Terminal {
 public:
  struct Size {
    int columns = 80;
    int rows = 24;
  };
  // Keys beside printable characters.
  enum Key : int {
    kEnter = '\r',
    kEscape = 27,
    kBackspace = 127,
    kUp = 256,
    kDown = 257,
    kResized = 258,
    // The terminal or the user wants the end.
    kEnd = 259,
  };

  virtual ~Terminal() = default;
  virtual Size size() = 0;
  // Shows these lines from the top; what has not changed is not sent again.
  virtual void Draw(const std::vector<std::string>& lines) = 0;
  // The next key, or nothing after `timeout`.
  virtual std::optional<int> ReadKey(absl::Duration timeout) = 0;
};

// The descriptors 0 and 1. While it exists: alternate screen, no echo, no
// cursor; the destructor puts everything back. Runs on one thread; one at a
// time, because it handles signals.
class ScreenTerminal : public Terminal {
 public:
  ScreenTerminal();
  ~ScreenTerminal() override;
  ScreenTerminal(const ScreenTerminal&) = delete;
  ScreenTerminal& operator=(const ScreenTerminal&) = delete;

  Size size() override;
  void Draw(const std::vector<std::string>& lines) override;
  std::optional<int> ReadKey(absl::Duration timeout) override;

 private:
  std::optional<int> NextKey();

  termios before_ = {};
  bool has_before_ = false;
  std::vector<std::string> shown_;
  Size shown_size_;
  // Bytes that were read and not used.
  std::string input_;
};

}  // namespace elasticdl::cli
