// A job that an experiment has started, on this machine or on a cluster: its
// process, and what its event log tells.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/experiment/job_view.h"
#include "elasticdl/experiment/measure.h"
#include "elasticdl/experiment/plan.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {

// Seconds since 1970, as in event logs.
double WallSeconds();
constexpr double kNever = std::numeric_limits<double>::infinity();

struct LiveJobOptions {
  // The folder of its files: events.jsonl, audit.jsonl, output.log, and state/
  // or, on a cluster, master.log.
  std::string folder;
  std::string name;
  // elasticdl, torchrun or mpirun.
  std::string peer;
  // "{run}" in a value is the folder; on a cluster, which does not have it, a
  // name that no other run and no earlier try of this one has.
  experiment::Settings flags;
  int64_t workers = 1;
  // For a peer: how often it will be killed, which decides how often it saves.
  double mtbf = 0;
  // A folder for a note that is there as long as the job may be on a cluster,
  // for RemoveLeftJobs.
  std::string notes;
};

// The command line of such a job.
std::vector<std::string> JobCommandLine(const LiveJobOptions& options);

// Thread-compatible. The destructor kills what still runs.
class LiveJob {
 public:
  static absl::StatusOr<std::unique_ptr<LiveJob>> Start(
      const LiveJobOptions& options);
  virtual ~LiveJob();
  LiveJob(const LiveJob&) = delete;
  LiveJob& operator=(const LiveJob&) = delete;

  // Becomes readable when the process has ended; when there are new events.
  int end_fd() const { return process_.pidfd.get(); }
  virtual int events_fd() const = 0;

  // Takes in what the event log has to say, and which processes have ended.
  virtual void ReadEvents() = 0;
  const experiment::JobView& view() const { return view_; }
  // Add it to a time of the view for the time here.
  virtual double clock_offset() const { return 0; }

  // Carries out what is due and returns when that was, by the clock here.
  // UNIMPLEMENTED: this peer cannot; FAILED_PRECONDITION: it has ended.
  virtual absl::StatusOr<double> Deliver(
      const experiment::Delivery& delivery) = 0;
  // Changes the number of workers or (if 0) of servers.
  virtual absl::Status Scale(int64_t workers, int64_t servers) = 0;
  // Asks it to end; more than once kills it.
  virtual void Stop() = 0;
  // Waits for the end of a process that has ended or is about to.
  virtual void Reap();
  // Removes what a job that was reaped leaves on a cluster, which may take a
  // while. An error is for the user; the job has ended all the same.
  virtual absl::Status CleanUp() { return absl::OkStatus(); }
  bool reaped() const { return reaped_; }
  // 0, or what the process says went wrong.
  int exit_code() const { return exit_code_; }
  // -1: unknown.
  virtual double cpu_seconds() const { return cpu_seconds_; }

  const LiveJobOptions& options() const { return options_; }
  std::string EventLog() const;
  // What its audit proves.
  virtual experiment::LedgerCheck Ledger(bool finished) const;
  // The last words of its output, for a message.
  std::string LastOutput() const;

 protected:
  LiveJob(LiveJobOptions options, process::Process process);
  std::string PathOf(const char* file) const;

  const LiveJobOptions options_;
  process::Process process_;
  experiment::JobView view_;

 private:
  bool reaped_ = false;
  int exit_code_ = -1;
  double cpu_seconds_ = 0;
};

// Both kinds; LiveJob::Start chooses.
absl::StatusOr<std::unique_ptr<LiveJob>> StartJobHere(
    const LiveJobOptions& options);
absl::StatusOr<std::unique_ptr<LiveJob>> StartJobOnCluster(
    const LiveJobOptions& options);

// Removes the jobs of an experiment that was killed from their cluster, by the
// notes in a folder. Says what it removes.
absl::Status RemoveLeftJobs(const std::string& folder);

}  // namespace elasticdl::cli
