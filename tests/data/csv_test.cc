// Fields of CSV records.
#include "elasticdl/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CsvTest, SplitsPlainFields) {
  EXPECT_THAT(*ParseCsvRecord("a,b c,"), ElementsAre("a", "b c", ""));
  EXPECT_THAT(*ParseCsvRecord(""), ElementsAre(""));
  EXPECT_THAT(*ParseCsvRecord(",,"), ElementsAre("", "", ""));
  EXPECT_THAT(*ParseCsvRecord("a\tb,c", '\t'), ElementsAre("a", "b,c"));
}

TEST(CsvTest, UnquotesFields) {
  EXPECT_THAT(*ParseCsvRecord(R"("a,b","say ""hi""","")"),
              ElementsAre("a,b", "say \"hi\"", ""));
  EXPECT_THAT(*ParseCsvRecord("\"two\nlines\",x"),
              ElementsAre("two\nlines", "x"));
  // Inside a plain field a quote is a character.
  EXPECT_THAT(*ParseCsvRecord("5\" disk,6\"\""),
              ElementsAre("5\" disk", "6\"\""));
}

TEST(CsvTest, RefusesBrokenQuotes) {
  EXPECT_THAT(ParseCsvRecord("x,\"abc").status().message(),
              HasSubstr("does not end, begun at byte 2"));
  EXPECT_THAT(ParseCsvRecord("\"a\"b,c").status().message(),
              HasSubstr("text after a closing quote at byte 3"));
}

TEST(CsvTest, FormatIsTheOpposite) {
  const std::vector<std::vector<std::string>> rows = {
      {"a", "b"}, {""}, {"x,y", "q\"q", "l\nl", ""}, {"", ""}};
  for (const auto& row : rows) {
    EXPECT_EQ(*ParseCsvRecord(FormatCsvRecord(row)), row);
  }
}

}  // namespace
}  // namespace elasticdl::data
