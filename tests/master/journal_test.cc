// The master's journal as a file: what was appended comes back, a torn end is
// dropped, damage is told.
#include "journal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.Path("journal"); }

  std::vector<v1::JournalRecord> Read() {
    std::vector<v1::JournalRecord> records;
    const auto journal = Journal::Open(path(), records);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return records;
  }
  void Write(int first, int count) {
    std::vector<v1::JournalRecord> records;
    const auto journal = Journal::Open(path(), records);
    ASSERT_TRUE(journal.ok()) << journal.status();
    for (int i = 0; i < count; ++i) {
      v1::JournalRecord record;
      record.set_worker(first + i);
      ASSERT_TRUE((*journal)->Append(record).ok());
    }
  }
  std::string Bytes() { return *ReadFile(path()); }
  void SetBytes(const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomic(path(), bytes).ok());
  }

  test::TempDir dir_;
};

TEST_F(JournalTest, NewOneIsEmpty) {
  EXPECT_TRUE(Read().empty());
  EXPECT_TRUE(Read().empty());
}

TEST_F(JournalTest, RecordsComeBackInOrderOverSeveralRuns) {
  Write(0, 3);
  Write(3, 2);
  const auto records = Read();
  ASSERT_EQ(records.size(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(records[i].worker(), i);
}

TEST_F(JournalTest, EveryTornEndIsDroppedAndWritingGoesOn) {
  Write(0, 3);
  const std::string whole = Bytes();
  Write(3, 1);
  const std::string more = Bytes();
  for (size_t size = whole.size(); size < more.size(); ++size) {
    SetBytes(more.substr(0, size));
    EXPECT_EQ(Read().size(), 3) << size;
    EXPECT_EQ(Bytes(), whole) << size;
    Write(7, 1);
    const auto records = Read();
    ASSERT_EQ(records.size(), 4) << size;
    EXPECT_EQ(records.back().worker(), 7);
  }
}

TEST_F(JournalTest, TornFirstBytesAreANewJournal) {
  Write(0, 0);
  const std::string magic = Bytes();
  for (size_t size = 0; size < magic.size(); ++size) {
    SetBytes(magic.substr(0, size));
    EXPECT_TRUE(Read().empty());
    EXPECT_EQ(Bytes(), magic);
  }
}

TEST_F(JournalTest, DamageInTheMiddleIsTold) {
  Write(0, 3);
  const std::string good = Bytes();
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] ^= 1;
    SetBytes(bytes);
    std::vector<v1::JournalRecord> records;
    const auto journal = Journal::Open(path(), records);
    EXPECT_EQ(journal.status().code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_NE(journal.status().message().find(path()), std::string::npos);
    EXPECT_EQ(Bytes(), bytes) << "a damaged journal is left alone";
  }
}

TEST_F(JournalTest, AnotherFileIsRefused) {
  SetBytes("something else entirely");
  std::vector<v1::JournalRecord> records;
  EXPECT_EQ(Journal::Open(path(), records).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(Bytes(), "something else entirely");
}

}  // namespace
}  // namespace elasticdl::master
