// The master's journal as a file: what was appended comes back, a torn end is
// dropped, damage is told.
#include "journal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "support/small_disk.h"
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

v1::JournalRecord Worker(int64_t id) {
  v1::JournalRecord record;
  record.set_worker(id);
  return record;
}

// Half of a record must not stay before later ones.
TEST_F(JournalTest, ADiskThatIsFullForAWhileDoesNoHarm) {
  const bool permitted = test::RunOnSmallDisk(dir_.path(), "64k", [&] {
    std::vector<v1::JournalRecord> records;
    const auto journal = Journal::Open(path(), records);
    const std::string filler = dir_.Path("filler");
    EXPECT_TRUE(WriteFileAtomic(filler, std::string(8192, 'x')).ok());
    int64_t id = 0;
    v1::JournalRecord large;
    large.mutable_outcome()->set_message(std::string(3000, 'x'));
    while ((*journal)->Append(large).ok()) ++id;
    EXPECT_GT(id, 10);
    EXPECT_FALSE((*journal)->complete());
    EXPECT_TRUE((*journal)->WantsReplace());
    // Small enough to fit; but what came before it is missing.
    EXPECT_FALSE((*journal)->Append(Worker(7)).ok());
    {
      // The next master, should this one die now.
      const auto next = Journal::Open(path(), records);
      EXPECT_TRUE(next.ok()) << next.status();
      EXPECT_EQ(static_cast<int64_t>(records.size()), id);
      EXPECT_FALSE((*next)->complete());
    }
    EXPECT_FALSE((*journal)->Replace({Worker(1), Worker(2)}).ok());
    EXPECT_TRUE(RemoveTree(filler).ok());
    EXPECT_TRUE((*journal)->Replace({Worker(1), Worker(2)}).ok());
    EXPECT_TRUE((*journal)->complete());
    EXPECT_TRUE((*journal)->Append(Worker(3)).ok());
    const auto again = Journal::Open(path(), records);
    EXPECT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE((*again)->complete());
    EXPECT_EQ(records.size(), 3u);
    EXPECT_EQ(records.back().worker(), 3);
  });
  if (!permitted) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
}

// There is no room for the new one beside the old one.
TEST_F(JournalTest, AFailedReplaceLeavesTheOldOne) {
  const bool permitted = test::RunOnSmallDisk(dir_.path(), "64k", [&] {
    std::vector<v1::JournalRecord> records;
    const auto journal = Journal::Open(path(), records);
    v1::JournalRecord large;
    large.mutable_outcome()->set_message(std::string(40'000, 'x'));
    EXPECT_TRUE((*journal)->Append(large).ok());
    EXPECT_FALSE((*journal)->Replace({large, Worker(1)}).ok());
    EXPECT_TRUE((*journal)->Append(Worker(2)).ok());
    EXPECT_EQ(ListDirectory(dir_.path())->size(), 1u);
    const auto again = Journal::Open(path(), records);
    EXPECT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(records.size(), 2u);
  });
  if (!permitted) GTEST_SKIP() << "mounting a tmpfs is not permitted here";
}

TEST_F(JournalTest, AReplacedOneHoldsTheNewRecords) {
  Write(0, 100);
  std::vector<v1::JournalRecord> records;
  const auto journal = Journal::Open(path(), records);
  const int64_t before = (*journal)->bytes();
  ASSERT_TRUE((*journal)->Replace({Worker(500)}).ok());
  EXPECT_LT((*journal)->bytes(), before);
  ASSERT_TRUE((*journal)->Append(Worker(501)).ok());
  EXPECT_EQ((*journal)->bytes(), static_cast<int64_t>(Bytes().size()));
  records = Read();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].worker(), 500);
  EXPECT_EQ(records[1].worker(), 501);
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
