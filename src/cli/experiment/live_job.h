// A job that an experiment has started: its process, and what its event log
// tells.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/experiment/job_view.h"
#include "elasticdl/experiment/plan.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {

// Seconds since 1970, as in event logs.
double WallSeconds();
constexpr double kNever = std::numeric_limits<double>::infinity();

struct LiveJobOptions {
  // The folder of its files: events.jsonl, audit.jsonl, output.log, state/.
  std::string folder;
  std::string name;
  // elasticdl, torchrun or mpirun.
  std::string peer;
  // "{run}" in a value is the folder.
  experiment::Settings flags;
  int64_t workers = 1;
  // For a peer: how often it will be killed, which decides how often it saves.
  double mtbf = 0;
};

// The command line of such a job.
std::vector<std::string> JobCommandLine(const LiveJobOptions& options);

// Thread-compatible. The destructor kills what still runs.
class LiveJob {
 public:
  static absl::StatusOr<std::unique_ptr<LiveJob>> Start(
      const LiveJobOptions& options);
  ~LiveJob();

  // Becomes readable when the process has ended; when there are new events.
  int end_fd() const { return process_.pidfd.get(); }
  int events_fd() const { return changes_.get(); }

  // Takes in what the event log has to say, and which processes have ended.
  void ReadEvents();
  const experiment::JobView& view() const { return view_; }

  // Carries out what is due. UNIMPLEMENTED: this peer cannot.
  absl::Status Deliver(const experiment::Delivery& delivery);
  // Changes the number of workers or (if 0) of servers.
  absl::Status Scale(int64_t workers, int64_t servers);
  // Asks it to end; more than once kills it.
  void Stop();
  // Waits for the end of a process that has ended or is about to.
  void Reap();
  bool reaped() const { return reaped_; }
  // 0, or what the process says went wrong.
  int exit_code() const { return exit_code_; }
  double cpu_seconds() const { return cpu_seconds_; }

  const LiveJobOptions& options() const { return options_; }
  std::string EventLog() const;
  std::string Audit() const;
  // The last words of its output, for a message.
  std::string LastOutput() const;

 private:
  void WatchPods();

  LiveJob(LiveJobOptions options, process::Process process, Fd changes);

  const LiveJobOptions options_;
  process::Process process_;
  Fd changes_;
  experiment::JobView view_;
  // Of the event log: how much was read, and the beginning of a line.
  int64_t read_ = 0;
  std::string rest_;
  // Of workers and servers, so that no signal reaches a process that has got
  // the id of one of them later.
  std::map<pid_t, Fd> pods_;
  bool asked_ = false;
  bool reaped_ = false;
  int exit_code_ = -1;
  double cpu_seconds_ = 0;
};

}  // namespace elasticdl::cli
