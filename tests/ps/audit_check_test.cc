// Both checkers of audits, that of the tests (support/ps_audit_check.h) and
// that of `elasticdl audit`, accept what is exact and find what is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/ledger_audit.h"
#include "elasticdl/server_audit.h"
#include "support/ledger_counts.h"
#include "support/ps_audit_check.h"
#include "support/temp_dir.h"

namespace elasticdl::test {
namespace {

// Lines of an audit.
std::string Term(int server, int64_t term, int64_t begins,
                 const char* what = "begins") {
  return absl::StrCat("{\"server\":", server, ",\"run\":\"r\",\"term\":", term,
                      ",\"", what, "\":", begins, "}\n");
}
std::string Buckets(int server, int64_t entry, const char* what, int from,
                    int to) {
  std::vector<int> buckets(static_cast<size_t>(to - from));
  std::iota(buckets.begin(), buckets.end(), from);
  return absl::StrCat("{\"server\":", server, ",\"map\":1,\"", what, "\":[",
                      absl::StrJoin(buckets, ","), "],\"entry\":", entry,
                      "}\n");
}
std::string Push(int server, int64_t entry, int64_t record,
                 const std::string& more = "") {
  return absl::StrCat("{\"server\":", server,
                      ",\"epoch\":0,\"shard\":\"s\",\"begin\":", record,
                      ",\"end\":", record + 1, ",\"version\":", entry,
                      ",\"entry\":", entry, more, "}\n");
}

class AuditCheckTest : public testing::Test {
 protected:
  // So many records are committed, once each.
  int64_t FindingsOf(const std::vector<std::string>& files, int64_t records) {
    Findings findings;
    PsAuditCheck check(findings);
    for (size_t i = 0; i < files.size(); ++i) {
      const std::string path = dir_.Path(absl::StrCat("audit.", i));
      EXPECT_TRUE(WriteFileAtomic(path, files[i]).ok());
      check.Read(path);
    }
    Counts counts;
    for (int64_t i = 0; i < records; ++i) counts[{0, "s"}][i] = {1, 1};
    check.Compare(counts, /*partial=*/false);
    const ServerAuditResult result = ByTheProgram(files, records);
    EXPECT_EQ(result.findings == 0, findings.count() == 0)
        << absl::StrJoin(result.places, "\n");
    EXPECT_EQ(result.files, static_cast<int64_t>(files.size()));
    return findings.count();
  }
  static ServerAuditResult ByTheProgram(const std::vector<std::string>& files,
                                        int64_t records) {
    ServerAudit servers;
    for (const std::string& file : files) {
      std::istringstream in(file);
      const absl::Status read = servers.Read("audit", in);
      EXPECT_TRUE(read.ok()) << read;
    }
    std::string lines;
    for (int64_t i = 0; i < records; ++i) {
      absl::StrAppend(&lines, R"({"epoch":0,"shard":"s","begin":)", i,
                      ",\"end\":", i + 1, ",\"step\":", i + 1, "}\n");
    }
    std::istringstream in(lines);
    LedgerAudit ledger;
    EXPECT_TRUE(ledger.Read(in).ok());
    return servers.Check(ledger, /*partial=*/false);
  }

  const std::string begin_ = Term(0, 1, 0) + Buckets(0, 0, "gets", 0, 1024);
  TempDir dir_;
};

TEST_F(AuditCheckTest, OneServer) {
  EXPECT_EQ(FindingsOf({begin_ + Push(0, 1, 0) + Push(0, 2, 1)}, 2), 0);
  // One is missing, there twice, or not known.
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 0)}, 2), 0);
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 0) + Push(0, 2, 0)}, 1), 0);
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 0) + Push(0, 2, 1)}, 1), 0);
  // A bucket is nowhere.
  EXPECT_GT(
      FindingsOf(
          {Term(0, 1, 0) + Buckets(0, 0, "gets", 1, 1024) + Push(0, 1, 0)}, 1),
      0);
}

TEST_F(AuditCheckTest, BucketsMove) {
  const std::string from =
      begin_ + Push(0, 1, 0) + Buckets(0, 2, "gives", 0, 2);
  // The second push reached the other server first.
  const std::string to = Term(1, 1, 0) + Buckets(1, 1, "gets", 0, 2);
  EXPECT_EQ(FindingsOf({from + Push(0, 3, 1), to + Push(1, 2, 1)}, 2), 0);
  // It had it before, or gets it later.
  EXPECT_EQ(
      FindingsOf({begin_ + Push(0, 1, 0) + Push(0, 2, 1) +
                      Buckets(0, 3, "gives", 0, 1) + Push(0, 4, 2),
                  Term(1, 1, 0) + Buckets(1, 0, "gets", 0, 1) + Push(1, 1, 2)},
                 3),
      0);
  EXPECT_EQ(FindingsOf({from + Push(0, 3, 1, ",\"but\":[7]") +
                            Push(0, 4, 1, ",\"catch_up\":true,\"buckets\":[7]"),
                        to + Push(1, 2, 1)},
                       2),
            0);
  EXPECT_GT(
      FindingsOf({from + Push(0, 3, 1, ",\"but\":[7]"), to + Push(1, 2, 1)}, 2),
      0);
  EXPECT_GT(FindingsOf({from + Push(0, 3, 1), to}, 2), 0);
  EXPECT_GT(
      FindingsOf({from + Push(0, 3, 1), to + Push(1, 2, 1) + Push(1, 3, 1)}, 2),
      0);
  // Both have it.
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 0), to}, 1), 0);
}

TEST_F(AuditCheckTest, ABackupTakesOver) {
  const std::string backup =
      Term(0, 1, 0, "follows") + Buckets(0, 0, "gets", 0, 1024) + Push(0, 1, 0);
  const std::string primary = begin_ + Push(0, 1, 0);
  EXPECT_EQ(FindingsOf({primary, backup}, 1), 0);
  // The last entry of the primary is void.
  EXPECT_EQ(
      FindingsOf(
          {primary + Push(0, 2, 5), backup + Term(0, 2, 2) + Push(0, 2, 1)}, 2),
      0);
  // The old primary follows; it gets a snapshot of the first three.
  EXPECT_EQ(FindingsOf({primary + Push(0, 2, 5) + Term(0, 2, 3, "follows") +
                            Push(0, 3, 2),
                        backup + Term(0, 2, 2) + Push(0, 2, 1) + Push(0, 3, 2)},
                       3),
            0);
  // The copies differ.
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 1), backup}, 1), 0);
  // An entry that was acknowledged is lost.
  EXPECT_GT(FindingsOf({primary + Push(0, 2, 1), backup + Term(0, 2, 2)}, 2),
            0);
  // Nobody has begun the term.
  EXPECT_GT(FindingsOf({backup}, 1), 0);
}

TEST_F(AuditCheckTest, APartComesBack) {
  const std::string first =
      begin_ + Push(0, 1, 0) + Buckets(0, 2, "gives", 0, 1024);
  const std::string other = Term(1, 1, 0) + Buckets(1, 0, "gets", 0, 1024) +
                            Push(1, 1, 1) + Buckets(1, 2, "gives", 0, 1024);
  EXPECT_EQ(FindingsOf({first + Term(0, 2, 0) + Buckets(0, 0, "gets", 0, 1024) +
                            Push(0, 1, 2),
                        other},
                       3),
            0);
  // It had lost its log with what it had.
  EXPECT_GT(FindingsOf({begin_ + Push(0, 1, 0) + Term(0, 2, 0) +
                        Buckets(0, 0, "gets", 0, 1024)},
                       1),
            0);
}

// Three servers between which buckets move at random, with pushes that reach
// them in any order: exact, and no longer when one line is missing or there
// twice.
class RandomHistory {
 public:
  explicit RandomHistory(uint64_t seed) : random_(seed) {
    for (int s = 0; s < kServers; ++s) Append(s, Term(s, 1, 0));
    Move(0, 0, 0, 1024);
    // A server has a bucket before it gets pushes.
    for (int s = 1; s < kServers; ++s) Move(0, s, s, s + 1);
    for (int64_t record = 0; record < kRecords; ++record) {
      if (Below(3) == 0) MoveSome();
      for (int s = 0; s < kServers; ++s) Append(s, Push(s, entry_++, record));
    }
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& lines : lines_) files.push_back(absl::StrJoin(lines, ""));
    return files;
  }
  // Removes or repeats a push, or removes a move.
  void Damage() {
    auto& lines = lines_[static_cast<size_t>(Below(kServers))];
    const auto at =
        lines.begin() + 1 + Below(static_cast<int>(lines.size()) - 1);
    const bool push = at->find("epoch") != at->npos;
    if (push && Below(2) == 0) {
      const std::string again = *at;
      lines.insert(at, again);
    } else {
      lines.erase(at);
    }
  }

  static constexpr int64_t kRecords = 20;

 private:
  static constexpr int kServers = 3;

  int Below(int end) {
    return std::uniform_int_distribution(0, end - 1)(random_);
  }
  void Append(int server, std::string line) {
    lines_[static_cast<size_t>(server)].push_back(std::move(line));
  }
  void Move(int from, int to, int begin, int end) {
    if (from != to) Append(from, Buckets(from, entry_++, "gives", begin, end));
    Append(to, Buckets(to, entry_++, "gets", begin, end));
  }
  // A piece of those that server 0 had at first: buckets from 3 on.
  void MoveSome() {
    const int piece = Below(7);
    int& owner = owners_[static_cast<size_t>(piece)];
    const int to = Below(kServers);
    if (to == owner) return;
    Move(owner, to, 10 + 100 * piece, 110 + 100 * piece);
    owner = to;
  }

  std::mt19937_64 random_;
  std::array<std::vector<std::string>, kServers> lines_;
  std::array<int, 7> owners_ = {};
  // Of all servers: numbers may have gaps.
  int64_t entry_ = 0;
};

TEST_F(AuditCheckTest, RandomHistories) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomHistory history(seed);
    EXPECT_EQ(FindingsOf(history.Files(), RandomHistory::kRecords), 0);
    history.Damage();
    EXPECT_GT(FindingsOf(history.Files(), RandomHistory::kRecords), 0);
  }
}

}  // namespace
}  // namespace elasticdl::test
