// What audits of servers prove, in words; which histories are exact is
// audit_check_test.cc's to tell.
#include "elasticdl/server_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/ledger_audit.h"

namespace elasticdl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Term(int64_t term, int64_t begins, const char* what = "begins",
                 const char* run = "r") {
  return absl::StrCat(R"({"server":0,"run":")", run, R"(","term":)", term,
                      ",\"", what, "\":", begins, "}\n");
}
std::string AllBuckets(int64_t entry, const char* what = "gets") {
  std::vector<int> buckets(1024);
  std::iota(buckets.begin(), buckets.end(), 0);
  return absl::StrCat(R"({"server":0,"map":1,")", what, "\":[",
                      absl::StrJoin(buckets, ","), "],\"entry\":", entry,
                      "}\n");
}
std::string Push(int64_t entry, int64_t begin, int64_t end, int64_t epoch = 0,
                 const std::string& shard = "s", const std::string& more = "") {
  return absl::StrCat(R"({"server":0,"epoch":)", epoch, R"(,"shard":")", shard,
                      R"(","begin":)", begin, ",\"end\":", end,
                      ",\"version\":", entry, ",\"entry\":", entry, more,
                      "}\n");
}
std::string Commit(int64_t begin, int64_t end, int64_t epoch = 0,
                   const std::string& shard = "s") {
  return absl::StrCat(R"({"epoch":)", epoch, R"(,"shard":")", shard,
                      R"(","begin":)", begin, ",\"end\":", end,
                      ",\"step\":1}\n");
}

ServerAuditResult Check(const std::vector<std::string>& files,
                        const std::string& ledger, bool partial = false) {
  ServerAudit servers;
  for (size_t i = 0; i < files.size(); ++i) {
    std::istringstream in(files[i]);
    const absl::Status read = servers.Read(absl::StrCat("file ", i), in);
    EXPECT_TRUE(read.ok()) << read;
  }
  LedgerAudit audit;
  std::istringstream in(ledger);
  EXPECT_TRUE(audit.Read(in).ok());
  return servers.Check(audit, partial);
}

std::string ErrorOf(const std::string& text) {
  ServerAudit servers;
  std::istringstream in(text);
  return std::string(servers.Read("file", in).message());
}

const std::string& Begin() {
  static const auto& begin = *new std::string(Term(1, 0) + AllBuckets(0));
  return begin;
}

TEST(ServerAuditTest, RangesMayBeCutDifferently) {
  const ServerAuditResult result =
      Check({Begin() + Push(1, 0, 10) + Push(2, 10, 30) +
             Push(3, 0, 30, 0, "t") + Push(4, 0, 30, 1)},
            Commit(10, 20) + Commit(20, 30) + Commit(0, 10) +
                Commit(0, 30, 0, "t") + Commit(0, 15, 1) + Commit(15, 30, 1));
  EXPECT_THAT(result.places, IsEmpty());
  EXPECT_EQ(result.findings, 0);
  EXPECT_EQ(result.files, 1);
  EXPECT_EQ(result.parts, 1);
}

TEST(ServerAuditTest, SaysWhatIsWrongWhere) {
  const ServerAuditResult result =
      Check({Begin() + Push(1, 0, 10) + Push(2, 5, 20) + Push(3, 0, 5, 1) +
             Push(4, 0, 5, 2, "u") + Push(5, 0, 5, 2, "u")},
            Commit(0, 30) + Commit(0, 4, 1));
  const std::string all = "bucket 0 and 1023 more: epoch ";
  EXPECT_THAT(
      result.places,
      ElementsAre(
          all + "1, s, positions 5 to 10: committed, but applied 2 times",
          all + "1, s, positions 20 to 30: committed, but applied 0 times",
          all + "2, s, positions 4 to 5: applied, but not committed",
          all + "3, u, positions 0 to 5: not committed, but applied 2 times"));
  EXPECT_EQ(result.findings, 4);
  EXPECT_EQ(result.not_committed, 1);
}

TEST(ServerAuditTest, APartialJobMayHaveMore) {
  const std::string file = Begin() + Push(1, 0, 10) + Push(2, 10, 20);
  const ServerAuditResult result = Check({file}, Commit(0, 10), true);
  EXPECT_EQ(result.findings, 0);
  EXPECT_EQ(result.not_committed, 10);
  // But not twice, and not fewer.
  EXPECT_EQ(Check({file + Push(3, 10, 20)}, Commit(0, 10), true).findings, 1);
  EXPECT_EQ(Check({file}, Commit(0, 30), true).findings, 1);
}

TEST(ServerAuditTest, CommittedTwiceIsOnceInABucket) {
  EXPECT_EQ(
      Check({Begin() + Push(1, 0, 10)}, Commit(0, 10) + Commit(0, 10)).findings,
      0);
}

TEST(ServerAuditTest, CopiesThatDiffer) {
  const std::string backup = Term(1, 0, "follows") + AllBuckets(0);
  const ServerAuditResult result =
      Check({Begin() + Push(1, 0, 10), backup + Push(1, 0, 9)}, Commit(0, 10));
  EXPECT_THAT(result.places,
              ElementsAre("file 1: entry 1 differs from that in file 0"));
  EXPECT_THAT(Check({backup + Push(1, 0, 10)}, Commit(0, 10)).places,
              ElementsAre("part 0: no file says where term 1 began"));
  EXPECT_THAT(
      Check({Begin() + Push(2, 0, 10) + Push(1, 10, 20)}, Commit(0, 20)).places,
      ElementsAre("file 0: entry 1 after 2"));
}

TEST(ServerAuditTest, BucketsThatAreNowhere) {
  const ServerAuditResult result =
      Check({Begin() + Push(1, 0, 10) + AllBuckets(2, "gives")}, Commit(0, 10));
  EXPECT_EQ(result.findings, 1024);
  EXPECT_EQ(result.places.size(), 10u);
  EXPECT_EQ(result.places[0], "bucket 0 is on no server at the end");
  EXPECT_THAT(Check({Begin() + AllBuckets(1)}, "").places[5],
              "part 0 gets bucket 5, which it has");
}

TEST(ServerAuditTest, TheEndOfAKilledServer) {
  const std::string last = Push(2, 10, 20);
  EXPECT_EQ(Check({Begin() + Push(1, 0, 10) + last.substr(0, last.size() - 1)},
                  Commit(0, 10))
                .findings,
            0);
}

TEST(ServerAuditTest, LinesOfSomethingElse) {
  EXPECT_EQ(ErrorOf(Begin()), "");
  EXPECT_THAT(ErrorOf(Begin() + "{\n"), HasSubstr("line 3: no JSON object"));
  EXPECT_THAT(ErrorOf(Push(1, 0, 10)), HasSubstr("line 1: no term has begun"));
  EXPECT_THAT(ErrorOf(Begin() + Push(1, 5, 5)), HasSubstr("is no range"));
  EXPECT_THAT(ErrorOf(Begin() + Push(1, -5, 5)), HasSubstr("begin is missing"));
  EXPECT_THAT(ErrorOf(Begin() + "{\"entry\":1}\n"), HasSubstr("epoch is"));
  EXPECT_THAT(ErrorOf(Begin() + "{\"entry\":1,\"gets\":[1024]}\n"),
              HasSubstr("gets is no list of buckets"));
  EXPECT_THAT(ErrorOf(Begin() + "{\"entry\":1,\"gives\":\"x\"}\n"),
              HasSubstr("gives is no list of buckets"));
  EXPECT_THAT(ErrorOf(Term(1, 0) + Term(2, 0, "begins", "q")),
              HasSubstr("it is of run q of the job, other files are of r"));
  EXPECT_THAT(ErrorOf("{\"server\":0,\"term\":1}\n"), HasSubstr("follows"));
}

}  // namespace
}  // namespace elasticdl
