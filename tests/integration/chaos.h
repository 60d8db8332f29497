// Jobs with several workers to which terrible things happen, and what must be
// true of each of them afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "integration/job.h"

namespace elasticdl::test {

// Base of the chaos tests: a job of 960 records and 5 epochs in minibatches of
// 8 (40 steps per epoch with three workers) that goes slowly until a test lets
// it go.
class ChaosTest : public JobTest {
 protected:
  static constexpr int64_t kRecords = 960;
  static constexpr int64_t kEpochs = 5;

  void SetUp() override;

  // `elasticdl train` with AllReduce. `params` are added to the model's. The
  // job is called "chaos".
  std::unique_ptr<Job> StartJob(int64_t workers, const Flags& more = {},
                                const std::string& params = "");
  std::unique_ptr<Job> StartJobNamed(const std::string& name, int64_t workers,
                                     const Flags& more = {},
                                     const std::string& params = "");
  std::string chaos_csv() const { return Path("chaos.csv"); }

  // Steps of 100 ms (at first), of 10 ms, as fast as they can.
  void Stroll();
  void Walk();
  void Go();

  // The members of the newest world; empty before the first.
  static std::set<int64_t> Members(const std::vector<Json>& events);
  static Json LastWorld(const std::vector<Json>& events);
  // Waits until the newest world has exactly these members, or so many.
  static bool WaitForWorld(Job& job, const std::set<int64_t>& members);
  static bool WaitForSize(Job& job, size_t size);
  // Waits until the newest world does not have this member.
  static bool WaitForLoss(Job& job, int64_t worker_id);
  static bool WaitForReady(Job& job, int64_t worker_id);
  // Of a worker that was started; waits for that.
  static pid_t Pid(Job& job, int64_t worker_id);
  static void Signal(Job& job, int64_t worker_id, int signal);

  // Waits for the end and checks: exit code 0, the ledger exact, the same model
  // on all members. Prints the pauses.
  void Check(Job& job, int64_t epochs = kEpochs);
  // Lets the job go, then the same.
  void Finish(Job& job, int64_t epochs = kEpochs);
  testing::AssertionResult ChaosLedgerIsExact(Job& job, int64_t epochs,
                                              const Flags& more = {});
  // All members of the last world told the same digest of the last model.
  static testing::AssertionResult ModelsAreEqual(Job& job);
  // Digests by worker of the model of `step`.
  static std::map<int64_t, std::string> Digests(Job& job, int64_t step);
  static void PrintPauses(Job& job);
  // `elasticdl scale`, which must succeed.
  void Scale(Job& job, int64_t workers);

  std::string pace() const { return Path("pace"); }
};

}  // namespace elasticdl::test
