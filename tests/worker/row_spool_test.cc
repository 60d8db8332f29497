#include "row_spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace elasticdl::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(RowSpoolTest, GivesBackWhatWasAdded) {
  const test::TempDir dir;
  const std::string folder = dir.Path("new");
  auto spool = RowSpool::Create(folder);
  ASSERT_TRUE(spool.ok()) << spool.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the file has no name";

  const std::vector<int64_t> ids = {7, -3, 9};
  const std::vector<float> values = {1, 2, 3};
  const std::vector<float> slot = {4, 5, 6};
  const float* const slots[] = {slot.data()};
  spool->BeginTable("odd", 1, "zeros", {"m"});
  ASSERT_TRUE(spool->Add(ids, values.data(), slots).ok());
  // An odd number of floats came before.
  ASSERT_TRUE(spool->Add({ids.data(), 1}, values.data(), slots).ok());
  spool->BeginTable("empty", 4, "", {"m"});
  spool->BeginTable("wide", 3, "", {});
  ASSERT_TRUE(spool->Add({ids.data(), 1}, values.data(), {}).ok());

  checkpoint::Snapshot snapshot;
  const auto kept = (*std::move(spool)).AddTo(snapshot);
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_THAT(snapshot.tables, SizeIs(4));
  EXPECT_EQ(snapshot.tables[0].name, "odd");
  EXPECT_EQ(snapshot.tables[0].initializer, "zeros");
  EXPECT_THAT(snapshot.tables[0].ids, ElementsAre(7, -3, 9));
  EXPECT_THAT(snapshot.tables[0].values, ElementsAre(1, 2, 3));
  ASSERT_THAT(snapshot.tables[0].slots, SizeIs(1));
  EXPECT_EQ(snapshot.tables[0].slots[0].name, "m");
  EXPECT_THAT(snapshot.tables[0].slots[0].values, ElementsAre(4, 5, 6));
  EXPECT_EQ(snapshot.tables[1].name, "odd");
  EXPECT_THAT(snapshot.tables[1].ids, ElementsAre(7));
  EXPECT_EQ(snapshot.tables[2].name, "empty");
  EXPECT_EQ(snapshot.tables[2].dim, 4);
  EXPECT_THAT(snapshot.tables[2].ids, IsEmpty());
  EXPECT_THAT(snapshot.tables[3].values, ElementsAre(1, 2, 3));
}

TEST(RowSpoolTest, AFolderThatCannotBeWrittenIsNamed) {
  const auto spool = RowSpool::Create("/proc/nothing/here");
  ASSERT_FALSE(spool.ok());
  EXPECT_THAT(std::string(spool.status().message()),
              testing::HasSubstr("/proc/nothing"));
}

}  // namespace
}  // namespace elasticdl::worker
