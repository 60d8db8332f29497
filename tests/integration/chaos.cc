#include "integration/chaos.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/check.h"

namespace elasticdl::test {

void ChaosTest::SetUp() {
  WriteCsv(chaos_csv(), kRecords);
  ELASTICDL_CHECK(mkdir(pace().c_str(), 0755) == 0);
}

std::unique_ptr<Job> ChaosTest::StartJob(int64_t workers, const Flags& more,
                                         const std::string& params) {
  return StartJobNamed("chaos", workers, more, params);
}

std::unique_ptr<Job> ChaosTest::StartJobNamed(const std::string& name,
                                              int64_t workers,
                                              const Flags& more,
                                              const std::string& params) {
  Flags flags = {
      "--distribution_strategy=AllreduceStrategy",
      "--training_data=" + chaos_csv(),
      absl::StrCat("--num_workers=", workers),
      absl::StrCat("--num_epochs=", kEpochs),
      "--minibatch_size=8",
      "--model_params=" +
          absl::StrCat("pace=", pace(), params.empty() ? "" : ";", params)};
  flags.insert(flags.end(), more.begin(), more.end());
  return Train(name, flags);
}

void ChaosTest::Stroll() { unlink((pace() + "/walk").c_str()); }
void ChaosTest::Walk() { std::ofstream(pace() + "/walk") << "\n"; }
void ChaosTest::Go() { std::ofstream(pace() + "/go") << "\n"; }

Json ChaosTest::LastWorld(const std::vector<Json>& events) {
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    if (it->at("event") == "world") return *it;
  }
  return Json();
}

std::set<int64_t> ChaosTest::Members(const std::vector<Json>& events) {
  const Json world = LastWorld(events);
  std::set<int64_t> members;
  if (!world.is_null()) {
    for (const Json& id : world.at("members"))
      members.insert(id.get<int64_t>());
  }
  return members;
}

bool ChaosTest::WaitForWorld(Job& job, const std::set<int64_t>& members) {
  return job.WaitUntil(
      absl::StrCat("world of ", absl::StrJoin(members, ", ")),
      [&](const auto& events) { return Members(events) == members; });
}

bool ChaosTest::WaitForSize(Job& job, size_t size) {
  return job.WaitUntil(
      absl::StrCat("world of ", size, " members"),
      [&](const auto& events) { return Members(events).size() == size; });
}

bool ChaosTest::WaitForLoss(Job& job, int64_t worker_id) {
  return job.WaitUntil(absl::StrCat("world without worker ", worker_id),
                       [&](const std::vector<Json>& events) {
                         bool lost = false;
                         for (const Json& event : events) {
                           lost |= event.at("event") == "worker_lost" &&
                                   event.at("worker_id") == worker_id;
                         }
                         return lost && Members(events).count(worker_id) == 0;
                       });
}

bool ChaosTest::WaitForReady(Job& job, int64_t worker_id) {
  return job.WaitUntil(absl::StrCat("worker ", worker_id, " that is ready"),
                       [&](const std::vector<Json>& events) {
                         for (const Json& event : events) {
                           if (event.at("event") == "worker_ready" &&
                               event.at("worker_id") == worker_id) {
                             return true;
                           }
                         }
                         return false;
                       });
}

pid_t ChaosTest::Pid(Job& job, int64_t worker_id) {
  pid_t pid = 0;
  job.WaitUntil(absl::StrCat("start of worker ", worker_id),
                [&](const std::vector<Json>& events) {
                  for (const Json& event : events) {
                    if (event.at("event") == "pod_started" &&
                        event.at("id") == worker_id) {
                      pid = event.at("pid");
                    }
                  }
                  return pid != 0;
                });
  return pid;
}

void ChaosTest::Signal(Job& job, int64_t worker_id, int signal) {
  const pid_t pid = Pid(job, worker_id);
  if (pid > 0) kill(pid, signal);
}

void ChaosTest::Finish(Job& job, int64_t epochs) {
  Go();
  Check(job, epochs);
}

void ChaosTest::Check(Job& job, int64_t epochs) {
  ASSERT_EQ(job.Wait(), 0) << job.Output();
  PrintPauses(job);
  EXPECT_TRUE(ChaosLedgerIsExact(job, epochs)) << job.Output();
  EXPECT_TRUE(ModelsAreEqual(job)) << job.Output();
}

testing::AssertionResult ChaosTest::ChaosLedgerIsExact(Job& job, int64_t epochs,
                                                       const Flags& more) {
  Flags flags = {absl::StrCat("--epochs=", epochs),
                 absl::StrCat("--shard=", chaos_csv(), ":0:", kRecords)};
  flags.insert(flags.end(), more.begin(), more.end());
  return CheckLedger(job.audit(), flags);
}

std::map<int64_t, std::string> ChaosTest::Digests(Job& job, int64_t step) {
  const std::string wanted = absl::StrCat("model of step ", step, ": digest ");
  std::map<int64_t, std::string> digests;
  for (const int64_t id : job.WorkersWithLogs()) {
    const std::string log = job.Log(absl::StrCat(id));
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      const size_t at = line.find(wanted);
      if (at != line.npos) {
        digests[id] = std::string(line.substr(at + wanted.size()));
      }
    }
  }
  return digests;
}

testing::AssertionResult ChaosTest::ModelsAreEqual(Job& job) {
  const int64_t step = job.End().at("step");
  const std::set<int64_t> members = Members(job.Events());
  const std::map<int64_t, std::string> digests = Digests(job, step);
  std::set<std::string> different;
  for (const int64_t id : members) {
    const auto found = digests.find(id);
    if (found == digests.end()) {
      return testing::AssertionFailure()
             << "worker " << id << " did not tell its model of step " << step;
    }
    different.insert(found->second);
  }
  if (different.size() == 1) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different.size() << " models of step " << step << ": "
         << absl::StrJoin(digests, ", ", absl::PairFormatter("="));
}

void ChaosTest::PrintPauses(Job& job) {
  for (const Json& world : job.Events("world")) {
    std::cout << "[ pause    ] world " << world.at("generation") << " of "
              << world.at("members").size() << ": " << world.at("pause_ms")
              << " ms (" << world.at("cause").get<std::string>() << ")\n";
  }
}

void ChaosTest::Scale(Job& job, int64_t workers) {
  const auto scale =
      Run("scale", {Program("elasticdl"), "scale", "--job_name=" + job.name(),
                    absl::StrCat("--num_workers=", workers)});
  ASSERT_EQ(scale->Wait(), 0) << scale->err() << job.Output();
}

}  // namespace elasticdl::test
