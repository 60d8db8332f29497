// The checker of audits (support/ps_audit_check.h) accepts what is exact and
// finds what is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
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
    return findings.count();
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

}  // namespace
}  // namespace elasticdl::test
