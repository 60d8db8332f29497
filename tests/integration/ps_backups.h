// Jobs with --ps_backup=1 whose servers are lost, with their logs or without.
#pragma once

#include <signal.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "integration/ps_chaos.h"

namespace elasticdl::test {

class PsBackups : public PsChaosTest {
 protected:
  std::unique_ptr<Job> StartBackedUp(const std::string& name, int64_t servers,
                                     Flags flags) {
    flags.push_back("--ps_backup=1");
    return StartPs(name, servers, 2, flags);
  }
  static int64_t Count(const std::vector<Json>& events, const std::string& what,
                       int64_t part = -1) {
    int64_t count = 0;
    for (const Json& event : events) {
      count +=
          event.at("event") == what && (part < 0 || event.at("part") == part);
    }
    return count;
  }
  // Waits until every part has a current backup, after the last loss of one or
  // the last takeover, and both copies are where they belong with so many
  // servers: when servers have gone, one part must get another backup, which
  // begins after ps_scaled.
  static bool WaitForBackups(Job& job, int64_t servers) {
    return job.WaitUntil("current backups", [&](const auto& events) {
      for (int64_t part = 0; part < servers; ++part) {
        bool current = false;
        for (const Json& event : events) {
          const std::string what = event.at("event");
          if (what.rfind("ps_", 0) != 0 || event.value("part", -1) != part) {
            continue;
          }
          current = what == "ps_backup_current" &&
                    std::set<int64_t>{event.at("server"), event.at("backup")} ==
                        std::set<int64_t>{part, (part + 1) % servers};
        }
        if (!current) return false;
      }
      return true;
    });
  }
  static bool WaitForTakeover(Job& job, int64_t part, int64_t count = 1) {
    return job.WaitUntil("a takeover", [&](const auto& events) {
      return Count(events, "ps_takeover", part) >= count;
    });
  }
  // Kills a server and removes its logs, as the loss of its node does.
  void LoseNode(Job& job, const std::string& name, int64_t server) {
    const pid_t pid = PidOf(job, "ps", server);
    // Its successor must not find the logs: it cannot start before they are
    // gone.
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
    const std::string root =
        Path(absl::StrCat("state/elasticdl/jobs/", name, "/ps"));
    const auto runs = ListDirectory(root);
    ASSERT_TRUE(runs.ok()) << runs.status();
    for (const std::string& run : *runs) {
      const std::string dir = JoinPath(root, run);
      const auto logs = ListDirectory(dir);
      ASSERT_TRUE(logs.ok()) << logs.status();
      for (const std::string& log : *logs) {
        if (log != absl::StrCat("ps-", server) &&
            !absl::EndsWith(log, absl::StrCat("-on-", server))) {
          continue;
        }
        EXPECT_TRUE(RemoveTree(JoinPath(dir, log)).ok());
      }
    }
    ASSERT_EQ(kill(pid, SIGKILL), 0);
  }
};

}  // namespace elasticdl::test
