// Jobs of the real programs, as tests see them: started with flags, watched
// through their event log, checked by what they leave behind.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "integration/gpus.h"
#include "support/child_process.h"
#include "support/follow.h"
#include "support/temp_dir.h"

namespace elasticdl::test {

using Json = nlohmann::json;
using Flags = std::vector<std::string>;

// The path of elasticdl, elasticdl-master, elasticdl-ps or elasticdl-worker.
std::string Program(const std::string& name);
// Folder of the model files.
std::string Zoo();

// Writes a CSV file "id,x,y" with `count` records; y follows from x.
void WriteCsv(const std::string& path, int64_t count, int64_t first_id = 0);

// A job that was started. Thread-compatible.
class Job {
 public:
  Job(const ChildProcess::Options& options, std::string name,
      const std::string& dir);

  const std::string& name() const { return name_; }
  ChildProcess& process() { return process_; }
  std::string event_log() const { return event_log_; }
  std::string audit() const { return audit_; }
  // The value of the last flag of this name that it was started with; empty: it
  // has none.
  std::string Flag(const std::string& name) const;
  bool Has(const std::string& flag) const;

  // The next event called `event` that `wanted` accepts; earlier ones are
  // passed over. A null value, and a failure of the test, when it does not come
  // in time.
  Json WaitForEvent(
      const std::string& event, const std::function<bool(const Json&)>& wanted =
                                    [](const Json&) { return true; });
  // The next event that WaitUntil has not seen; nothing when it does not come
  // in time.
  std::optional<Json> NextEvent(absl::Duration timeout);
  // Waits until `condition` holds for all events so far; false, and a failure
  // of the test that says `what` was waited for, when it does not in time or
  // when the job ends first.
  bool WaitUntil(
      const std::string& what,
      const std::function<bool(const std::vector<Json>&)>& condition);
  // Process id of the newest worker that is ready; waits for the first.
  pid_t WaitForWorker(int64_t worker_id);

  // Waits for the end of the program and gives its exit code, -1 if it does not
  // end. Its output is shown if the test fails later.
  int Wait();

  // All events so far; each line must be a JSON object with time and event, in
  // the order of time.
  std::vector<Json> Events(const std::string& event = "");
  // The job_end event.
  Json End();
  // The log of a pod: master, or worker and its id.
  std::string Log(const std::string& pod);
  // Ids of the workers that have a log.
  std::vector<int64_t> WorkersWithLogs();
  // Everything that it said, for messages of assertions.
  std::string Output();

 private:
  const std::string name_;
  const std::string dir_;
  const std::string event_log_;
  const std::string audit_;
  const Flags argv_;
  ChildProcess process_;
  LineFollower follower_;
  // Of WaitUntil, which forgets nothing.
  LineFollower history_follower_;
  std::vector<Json> history_;

  std::string LogsDir() const;
};

// Base of the tests: a folder with data, and programs that keep all their state
// in it. At the end no process may be left.
class JobTest : public ::testing::Test {
 protected:
  static constexpr int64_t kTrainRecords = 320;
  static constexpr int64_t kTestRecords = 96;

  JobTest();
  void TearDown() override;

  const std::string& dir() const { return dir_.path(); }
  std::string Path(const std::string& name) const { return dir_.Path(name); }
  std::string train_csv() const { return Path("train.csv"); }
  std::string test_csv() const { return Path("test.csv"); }

  // `elasticdl train` of linear.cc under the Local strategy on train.csv, with
  // event log and audit: 20 steps of 16 records per epoch, 2 steps per task.
  // Later flags win over these.
  std::unique_ptr<Job> Train(const std::string& name, const Flags& flags);
  std::unique_ptr<Job> Evaluate(const std::string& name, const Flags& flags);
  std::unique_ptr<Job> Predict(const std::string& name, const Flags& flags);
  // `elasticdl <command>` with these flags and no others.
  std::unique_ptr<Job> Start(const std::string& command,
                             const std::string& name, const Flags& flags);
  // Any program; its output is in <name>.out and <name>.err.
  std::unique_ptr<ChildProcess> Run(const std::string& name,
                                    const std::vector<std::string>& argv);

  // Runs ledger_check: each record of train.csv once in each epoch.
  testing::AssertionResult LedgerIsExact(const std::string& audit,
                                         int64_t epochs,
                                         const Flags& more = {});
  testing::AssertionResult CheckLedger(const std::string& audit,
                                       const Flags& flags);

  // Those that workers of this test have.
  TestGpus Gpus();

  // How a program is started whose output is in <name>.out and <name>.err.
  ChildProcess::Options MakeOptions(const std::string& name,
                                    std::vector<std::string> argv) const;

  // Makes the folder and FIFO of the model parameter `gate`.
  std::string MakeGate();
  // The model has come to its gate.
  static bool WaitForGate(const std::string& gate);
  static void OpenGate(const std::string& gate);

 private:
  Orphanage orphanage_;
  const TempDir dir_;
};

// The files that servers have written with this --ps_audit, as flags of
// ledger_check.
Flags PsAudits(const std::string& audit);
// Steps to which the model fell back, from the audit.
std::vector<int64_t> CutBacks(const Job& job);
// Numbers of the complete versions in a checkpoint folder, ascending.
std::vector<int64_t> Versions(const std::string& checkpoint_dir);
// Files and folders in `path`, sorted; empty when it is not there.
std::vector<std::string> List(const std::string& path);
std::string Contents(const std::string& path);
std::vector<std::string> Lines(const std::string& path);

}  // namespace elasticdl::test
