// Shows the progress of a job: a live line on a terminal, plain lines in a
// pipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace elasticdl::master {

struct Progress {
  // What happens while no data is processed ("starting workers"); shown instead
  // of speed and loss. Empty while data is processed.
  std::string activity;
  // How long it has been going on; shown on a terminal.
  absl::Duration activity_time;
  // "train", "evaluate", "predict".
  std::string phase = "train";
  // From 1; num_epochs 0 = no end.
  int64_t epoch = 1;
  int64_t num_epochs = 1;
  int64_t step = 0;
  // Over all epochs; total 0 = not known.
  int64_t records_done = 0;
  int64_t records_total = 0;
  double records_per_s = 0;
  std::optional<double> loss;
  // Members now, and the number wanted.
  int64_t workers = 0;
  int64_t target_workers = 0;
  int64_t generation = 0;
};

// One line of at most `columns` characters (0 = any), without a newline. Pure.
//   epoch 1/2 [=====>    ]  52% step 488 12.4k rec/s loss 0.1234 workers 2/2
//   gen 3 ETA 0:12
//   epoch 1/2 [>         ]   0% step 0 (starting workers) workers 0/2
// Items that do not fit are dropped from the right; the bar only if `with_bar`
// and if it leaves room for the activity.
std::string RenderProgress(const Progress& progress, int columns,
                           bool with_bar);

// The same as a JSON object, for programs. Pure.
std::string ProgressToJson(const Progress& progress);

// "950", "12.4k", "3.1M".
std::string ShortNumber(double value);

// "0:07", "12:34", "1:02:03".
std::string ShortDuration(absl::Duration duration);

// Thread-compatible. The caller brings the time and calls Tick at next_wake().
// Errors of the descriptor are ignored (the reader of a pipe may go away; the
// program must ignore SIGPIPE).
class ProgressDisplay {
 public:
  enum class Mode {
    kNone,   // only messages
    kPlain,  // a line every plain_interval and messages
    kLive,   // one line that is redrawn, messages above it
    kJson,   // like kPlain for programs: an object per line
  };
  struct Options {
    int fd = 1;
    Mode mode = Mode::kPlain;
    absl::Duration plain_interval = absl::Seconds(10);
    // At most 10 redraws a second.
    absl::Duration redraw_interval = absl::Milliseconds(100);
  };
  // kLive when `fd` is a terminal that can move its cursor (`term` is the value
  // of TERM), else kPlain.
  static Mode DetectMode(int fd, const std::string& term);

  explicit ProgressDisplay(Options options);
  // Leaves the cursor on a fresh line.
  ~ProgressDisplay();

  void Update(const Progress& progress, absl::Time now);
  // One line above the live line, at once.
  void Message(absl::string_view text, absl::Time now);
  // Draws what is due.
  void Tick(absl::Time now);
  absl::Time next_wake() const;
  // Last state as a line that stays, unless nothing was done. Later calls print
  // messages only.
  void Finish(absl::Time now);

 private:
  void Write(absl::string_view text);
  void DrawLive(absl::Time now);
  std::string Line() const;
  int Columns() const;

  const Options options_;
  Progress progress_;
  // kPlain: the last line.
  std::string last_line_;
  bool changed_ = false;
  bool line_shown_ = false;
  bool finished_ = false;
  absl::Time last_drawn_ = absl::InfinitePast();
};

}  // namespace elasticdl::master
