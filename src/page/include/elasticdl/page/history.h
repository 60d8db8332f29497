// The history of a job in bounded memory: the lanes, worlds, curves and events
// that the page shows. Built from the lines of an event log (docs/formats.md),
// of a running or ended job.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace elasticdl::page {

// The first five in the order in which they follow each other. Workers of an
// evaluation or a prediction work, and those of a --job_command. The others
// come on top of these for a time: of several, the last one is shown.
enum class LaneState {
  kStarting,
  kJoining,
  kTraining,
  kWorking,
  kServing,
  kEvaluating,
  // It writes a checkpoint; training goes on beside it.
  kSaving,
  // It does not answer the master.
  kSilent,
};
const char* LaneStateName(LaneState state);

// How the life of a worker or server ended.
enum class LaneEnd { kNone, kLeft, kLost };

// A period of time in a row of the lanes. A row is a slot of a worker or a
// server: a replacement takes the same row.
struct Span {
  uint64_t id = 0;
  int64_t row = 0;
  bool server = false;
  // The worker or server; of a merged span the last one.
  int64_t member = 0;
  LaneState state = LaneState::kStarting;
  // What it is when nothing comes on top.
  LaneState base = LaneState::kStarting;
  double begin = 0;
  std::optional<double> end;
  LaneEnd ended = LaneEnd::kNone;
  // Why it came (starting), is silent, or has ended.
  std::string reason;
  // More than 1: so many workers or servers were here, each for a short time.
  int64_t members = 1;
  // How many of them were lost.
  int64_t lost = 0;
  uint64_t changed = 0;
};

// A world, or several that followed each other closely.
struct WorldMark {
  uint64_t id = 0;
  double time = 0;
  int64_t generation = 0;
  int64_t size = 0;
  std::string cause;
  // Of several: the longest, and the sum of all.
  double pause_ms = 0;
  double total_pause_ms = 0;
  int64_t worlds = 1;
  uint64_t changed = 0;
};

// A point of the curves.
struct Point {
  double time = 0;
  int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  // Since the point before, or of the last seconds if that is not known.
  double records_per_s = 0;
  int64_t workers = 0;
  uint64_t changed = 0;
  int64_t records_done = 0;
};

struct CheckpointMark {
  double time = 0;
  int64_t version = 0;
  double ms = 0;
  std::string path;
  std::string error;
  uint64_t changed = 0;
};

struct EvaluationMark {
  double time = 0;
  int64_t step = 0;
  // 0: not known.
  double ms = 0;
  std::map<std::string, double> metrics;
  uint64_t changed = 0;
};

// Scalings, and whatever else is of the whole job.
struct JobMark {
  double time = 0;
  std::string kind;
  std::string text;
  uint64_t changed = 0;
};

// One line of the event log, shortened.
struct EventLine {
  uint64_t id = 0;
  std::string json;
};

// Exact, even where other data was merged.
struct Totals {
  int64_t worlds = 0;
  int64_t joined = 0;
  int64_t left = 0;
  int64_t lost = 0;
  int64_t checkpoints = 0;
  int64_t evaluations = 0;
  int64_t events = 0;
  double pause_ms = 0;
  double longest_pause_ms = 0;
};

// What the last events say of the whole job.
struct Summary {
  std::string job;
  std::string command;
  // Empty: the log has no end. Otherwise succeeded, failed, stopped.
  std::string state;
  std::string reason;
  std::vector<std::string> flags;
  double begin = 0;
  double last = 0;
  std::optional<double> end;
  int64_t generation = 0;
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t num_epochs = 0;
  int64_t records_done = 0;
  int64_t records_total = 0;
  int64_t records_in_flight = 0;
  int64_t records_returned = 0;
  int64_t records_set_aside = 0;
  double records_per_s = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  int64_t workers = 0;
  int64_t target_workers = 0;
  // Milliseconds of a step, by the fields of the status' step_time.
  std::map<std::string, double> step_time;
};

// What is new since a cursor, or everything (`all`).
struct Changes {
  uint64_t cursor = 0;
  bool all = false;
  // How far the lanes of those that are there reach.
  double now = 0;
  // What to add to the time of day to get that of the history.
  double skew = 0;
  double resolution = 0;
  Totals totals;
  Summary summary;
  std::vector<Span> spans;
  std::vector<WorldMark> worlds;
  std::vector<Point> points;
  std::vector<CheckpointMark> checkpoints;
  std::vector<EvaluationMark> evaluations;
  std::vector<JobMark> marks;
  std::vector<EventLine> events;
  // What the model consists of, as JSON; empty: nothing new.
  std::string model;
};

// Thread-compatible; the time comes with the events. Bounded: when a limit is
// reached, first the oldest spans that evaluate or save become a part of what
// they interrupt; then the resolution of spans or worlds is doubled, and those
// that are shorter and closer than that are merged. The oldest checkpoints and
// events are dropped; points and evaluations are thinned.
class History {
 public:
  // More rows than a quarter of this raise it: four spans for each.
  static constexpr size_t kMaxSpans = 16384;
  static constexpr size_t kMaxWorlds = 4096;
  static constexpr size_t kMaxPoints = 2048;
  static constexpr size_t kMaxCheckpoints = 512;
  static constexpr size_t kMaxEvaluations = 1024;
  static constexpr size_t kMaxMarks = 1024;
  static constexpr size_t kMaxEvents = 1000;
  // Longer texts are cut, and so are lines.
  static constexpr size_t kMaxText = 200;
  static constexpr size_t kMaxLine = 2000;
  static constexpr size_t kMaxMetrics = 32;
  static constexpr size_t kMaxFlags = 500;
  // Of the model's tensors.
  static constexpr size_t kMaxTensors = 500;
  // About the year 5000: what is later is not a time.
  static constexpr double kLastTime = 1e11;

  // One line of an event log. INVALID_ARGUMENT: it is none; nothing changed.
  // Events and fields that are not known are left alone.
  absl::Status Add(absl::string_view line);

  // What changed after `cursor` (of an earlier answer; 0 = from the beginning).
  Changes Since(uint64_t cursor) const;

  uint64_t cursor() const { return cursor_; }
  const Summary& summary() const { return summary_; }
  // Changes::model; empty: not known yet.
  const std::string& model() const { return model_; }
  // About how much memory it takes.
  size_t bytes() const;

 private:
  struct Event;
  // Who is there: its row, its open span, and what comes on top of its base.
  struct Member {
    int64_t row = 0;
    size_t span = 0;
    LaneState base = LaneState::kStarting;
    bool evaluating = false;
    bool saving = false;
    bool silent = false;

    LaneState Shown() const {
      return silent       ? LaneState::kSilent
             : saving     ? LaneState::kSaving
             : evaluating ? LaneState::kEvaluating
                          : base;
    }
  };
  struct Row {
    bool server = false;
    std::optional<int64_t> occupant;
    int64_t last = -1;
  };
  using Key = std::pair<bool, int64_t>;  // server, id

  void Apply(const Event& event);
  void ApplyPod(const Event& event);
  void ApplyWorker(const Event& event);
  void ApplyWorld(const Event& event);
  void ApplyProgress(const Event& event);
  double RateSincePoint(double time) const;
  void ApplyCheckpoint(const Event& event);
  void ApplyEvaluation(const Event& event);
  void ApplyActivity(const Event& event);
  void ApplySilence(const Event& event);
  void ApplyJob(const Event& event);
  void AddMark(const Event& event, std::string text);
  void Keep(const Event& event);

  LaneState ReadyState() const;
  void Enter(Key key, double time, LaneState state, const std::string& reason,
             int64_t replaces = -1);
  void Leave(Key key, double time, bool lost, const std::string& reason);
  void CorrectEnd(Key key, const Event& event);
  static Span SpanOf(Key key, const Member& member, double time,
                     const std::string& reason);
  // Ends the open span and begins another, if it shows something else.
  void Show(Key key, double time, const std::string& reason);
  int64_t TakeRow(Key key, double time, int64_t replaces);
  size_t OpenSpan(const Span& span);

  void Thin();
  void ThinSpans();
  bool ForgetActivities();
  void JoinSpans();
  void PointToLast(const std::vector<std::optional<size_t>>& last);
  void MergeSpans();
  void MergeSpansOnce();
  void MergeWorlds();
  void ThinPoints();
  void ThinEvaluations();
  size_t MostSpans() const;

  uint64_t cursor_ = 0;
  // Cursors before this one get everything.
  uint64_t thinned_at_ = 0;
  uint64_t next_id_ = 1;
  double skew_ = 0;  // By how much the clock was set back, in seconds.
  // Of spans and of worlds, in seconds; 0: nothing has been merged.
  double resolution_ = 0;
  double world_resolution_ = 0;
  double spacing_ = 0.5;  // Between points, in seconds.
  Totals totals_;
  Summary summary_;
  std::string model_;
  uint64_t model_changed_ = 0;
  std::vector<Row> rows_;
  std::map<Key, Member> members_;
  std::vector<Span> spans_;
  std::vector<WorldMark> worlds_;
  std::vector<Point> points_;
  std::deque<CheckpointMark> checkpoints_;
  std::vector<EvaluationMark> evaluations_;
  std::deque<JobMark> marks_;
  std::deque<EventLine> events_;
};

// The answer of /api/v1/update. `status` is the one of /api/v1/status, as
// JSON; empty: made from the summary.
std::string ChangesToJson(const Changes& changes, absl::string_view status);

}  // namespace elasticdl::page
