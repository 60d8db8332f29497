// CSV and text files through OpenDataReader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/put_file.h"
#include "elasticdl/common/file.h"
#include "elasticdl/data/csv.h"
#include "elasticdl/data/reader.h"
#include "support/temp_dir.h"
#include "text_index.h"

namespace elasticdl::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextReaderTest : public testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text) {
    const std::string path = dir_.Path(name);
    EXPECT_TRUE(PutFile(path, text));
    return path;
  }

  // All records of the first shard.
  std::vector<std::string> ReadAll(const std::string& path,
                                   const ReaderParams& params = {}) {
    auto reader = OpenDataReader(path, params);
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return {};
    columns_ = (*reader)->metadata().column_names;
    const auto shards = *(*reader)->CreateShards();
    const auto batch =
        (*reader)->Read(shards[0].name, shards[0].begin, shards[0].end);
    EXPECT_TRUE(batch.ok()) << batch.status();
    return {batch->records().begin(), batch->records().end()};
  }

  test::TempDir dir_;
  std::vector<std::string> columns_;
};

TEST_F(TextReaderTest, FindsTheHeader) {
  const std::string path = Put("a.csv", "x,y\n1,2\n3,4\n");
  EXPECT_THAT(ReadAll(path), ElementsAre("1,2", "3,4"));
  EXPECT_THAT(columns_, ElementsAre("x", "y"));
  EXPECT_THAT(ReadAll(path, {{"header", "false"}}),
              ElementsAre("x,y", "1,2", "3,4"));
  EXPECT_THAT(columns_, ElementsAre());
}

TEST_F(TextReaderTest, FirstRowOfNumbersIsNoHeader) {
  const std::string path = Put("a.csv", "5.1,a\n4.9,b\n");
  EXPECT_THAT(ReadAll(path), ElementsAre("5.1,a", "4.9,b"));
  EXPECT_THAT(ReadAll(path, {{"header", "true"}}), ElementsAre("4.9,b"));
  EXPECT_THAT(columns_, ElementsAre("5.1", "a"));
  ReadAll(path, {{"columns", "['length', 'kind']"}});
  EXPECT_THAT(columns_, ElementsAre("length", "kind"));
}

TEST_F(TextReaderTest, AHeaderAloneIsNoRecord) {
  const std::string path = Put("a.csv", "x,y\n");
  const auto reader = OpenDataReader(path, {});
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(reader.status().message().find("no records"), std::string::npos);
  EXPECT_THAT(ReadAll(path, {{"header", "false"}}), ElementsAre("x,y"));
  EXPECT_THAT(ReadAll(Put("b.csv", "1,2\n")), ElementsAre("1,2"));
}

TEST_F(TextReaderTest, OneRowOfNamesAmongOtherFiles) {
  // The header of the other file.
  ASSERT_TRUE(MakeDirectories(dir_.Path("h")).ok());
  Put("h/a.csv", "x,y\n");
  Put("h/b.csv", "x,y\n1,2\n");
  EXPECT_THAT(ReadAll(dir_.Path("h"), {{"reader_type", "CSV"}}),
              ElementsAre("1,2"));
  // A record like those of the other file.
  ASSERT_TRUE(MakeDirectories(dir_.Path("r")).ok());
  Put("r/a.csv", "spam,buy\n");
  Put("r/b.csv", "ham,hello\nham,bye\n");
  EXPECT_THAT(ReadAll(dir_.Path("r"), {{"reader_type", "CSV"}}),
              ElementsAre("spam,buy"));
}

TEST_F(TextReaderTest, QuotedFieldsMaySpanLines) {
  const std::string path = Put(
      "a.csv",
      "\xef\xbb\xbfid,text\r\n1,\"two\r\nlines\"\r\n\r\n2,\"a \"\"b\"\"\n,c\""
      "\n3,5\" disk");
  EXPECT_THAT(
      ReadAll(path),
      ElementsAre("1,\"two\r\nlines\"", "2,\"a \"\"b\"\"\n,c\"", "3,5\" disk"));
  EXPECT_THAT(columns_, ElementsAre("id", "text"));
}

TEST_F(TextReaderTest, OpenQuoteNamesRecordAndOffset) {
  const std::string path = Put("a.csv", "x,y\n1,2\n3,\"oops\n4,5\n");
  const auto reader = OpenDataReader(path, {});
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reader.status().message(),
              HasSubstr(path + ": record 1 at byte offset 8"));
}

TEST_F(TextReaderTest, TabsAndOtherSeparators) {
  EXPECT_THAT(ReadAll(Put("a.tsv", "x\ty\n1\t2\n")), ElementsAre("1\t2"));
  EXPECT_THAT(columns_, ElementsAre("x", "y"));
  ReadAll(Put("b.csv", "x;y\n1;2\n"), {{"sep", ";"}});
  EXPECT_THAT(columns_, ElementsAre("x", "y"));
}

TEST_F(TextReaderTest, PlainTextKeepsEveryLine) {
  EXPECT_THAT(ReadAll(Put("a.txt", "\"one\n\ntwo\r\nlast")),
              ElementsAre("\"one", "", "two", "last"));
}

TEST_F(TextReaderTest, RandomRangesEqualTheWhole) {
  std::mt19937 random(3);
  std::string text = "name,value\n";
  std::vector<std::string> rows;
  for (int i = 0; i < 3000; ++i) {
    std::string word = "w";
    if (random() % 3 == 0) word += "\n,\"";
    rows.push_back(FormatCsvRecord({word, std::to_string(i)}));
    text += rows.back() + (random() % 2 ? "\n" : "\r\n");
    if (random() % 10 == 0) text += "\n";
  }
  const std::string path = Put("a.csv", text);
  const auto reader = OpenDataReader(path, {});
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ((*(*reader)->CreateShards())[0].end, 3000);
  for (int round = 0; round < 200; ++round) {
    const int64_t begin = random() % 3001;
    const int64_t end = begin + random() % (3001 - begin);
    const auto batch = (*reader)->Read(path, begin, end);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(
        std::vector<std::string>(batch->records().begin(),
                                 batch->records().end()),
        std::vector<std::string>(rows.begin() + begin, rows.begin() + end));
  }
  EXPECT_EQ((*reader)->Read(path, 2999, 3001).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(TextReaderTest, FolderOfFilesIsSorted) {
  Put("b.csv", "x\n2\n");
  Put("a.csv", "x\n1\n");
  Put("notes.md", "not data");
  const auto reader = OpenDataReader(dir_.path(), {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto shards = *(*reader)->CreateShards();
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].name, dir_.Path("a.csv"));
  EXPECT_EQ(shards[1].name, dir_.Path("b.csv"));
  Put("c.csv", "z\n1\n");
  EXPECT_THAT(OpenDataReader(dir_.path(), {}).status().message(),
              HasSubstr("the columns of " + dir_.Path("c.csv")));
}

TEST_F(TextReaderTest, FileWithoutRecordsIsRefused) {
  const std::string path = Put("a.csv", "\n\n");
  const auto reader = OpenDataReader(path, {});
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reader.status().message(), HasSubstr(path));
}

}  // namespace
}  // namespace elasticdl::data
