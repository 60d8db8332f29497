// What an audit proves, and lines that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "elasticdl/ledger_audit.h"

namespace elasticdl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Line(int epoch, int begin, int end, int step,
                 const std::string& shard = "s") {
  return absl::StrCat(R"({"epoch":)", epoch, R"(,"shard":")", shard,
                      R"(","begin":)", begin, R"(,"end":)", end,
                      R"(,"worker_id":0,"generation":1,"step":)", step, "}\n");
}

AuditResult CheckText(const std::string& text) {
  LedgerAudit audit;
  std::istringstream in(text);
  const absl::Status read = audit.Read(in);
  EXPECT_TRUE(read.ok()) << read;
  return audit.Check();
}

std::string ErrorOf(const std::string& text) {
  LedgerAudit audit;
  std::istringstream in(text);
  return std::string(audit.Read(in).message());
}

TEST(LedgerAuditTest, EachOnce) {
  const AuditResult result =
      CheckText(Line(0, 10, 20, 2) + Line(0, 0, 10, 1) + Line(0, 0, 5, 1, "t") +
                Line(1, 0, 20, 4));
  EXPECT_EQ(result.records, 45);
  EXPECT_EQ(result.twice, 0);
  EXPECT_EQ(result.epochs.at(0).records, 25);
  EXPECT_EQ(result.epochs.at(1).records, 20);
  EXPECT_THAT(result.places, IsEmpty());
}

TEST(LedgerAuditTest, Twice) {
  const AuditResult result =
      CheckText(Line(0, 0, 100, 1) + Line(0, 20, 30, 2) + Line(0, 90, 110, 3));
  EXPECT_EQ(result.records, 110);
  EXPECT_EQ(result.twice, 20);
  EXPECT_THAT(result.places,
              ElementsAre("epoch 1, s, positions 20 to 30: at steps 1 and 2",
                          "epoch 1, s, positions 90 to 100: at steps 1 and 3"));
}

TEST(LedgerAuditTest, ManyPlacesAreNotAllNamed) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += Line(0, i, i + 1, 1) + Line(0, i, i + 1, 2);
  const AuditResult result = CheckText(text);
  EXPECT_EQ(result.twice, 100);
  EXPECT_EQ(result.places.size(), 10u);
}

TEST(LedgerAuditTest, ARollbackMakesLaterStepsVoid) {
  const AuditResult result =
      CheckText(Line(0, 0, 10, 5) + Line(0, 10, 20, 7) + "{\"cut_back\":6}\n" +
                Line(0, 10, 20, 7));
  EXPECT_EQ(result.records, 20);
  EXPECT_EQ(result.twice, 0);
}

TEST(LedgerAuditTest, LinesOfSomethingElse) {
  const std::string good = Line(0, 0, 10, 5);
  EXPECT_EQ(ErrorOf(""), "");
  EXPECT_THAT(ErrorOf(good + "{"), HasSubstr("line 2: no JSON object"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("line 1: no JSON object"));
  EXPECT_THAT(ErrorOf("{\"event\":\"world\"}"), HasSubstr("is missing"));
  EXPECT_THAT(ErrorOf("{\"cut_back\":\"x\"}"), HasSubstr("is missing"));
  EXPECT_THAT(ErrorOf(Line(0, 10, 10, 1)), HasSubstr("is no range"));
  EXPECT_THAT(ErrorOf(Line(0, -1, 10, 1)), HasSubstr("is no range"));
}

}  // namespace
}  // namespace elasticdl
