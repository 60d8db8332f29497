// Checkpoints of parameter servers for other strategies, and the other way.
#include "table_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace elasticdl::worker {
namespace {

using checkpoint::Loaded;
using checkpoint::NamedTensor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

NamedTensor Tensor(const std::string& name, std::vector<int64_t> shape,
                   const std::vector<float>& values, Loaded& loaded) {
  const size_t size = values.size() * sizeof(float);
  char* const bytes = loaded.Allocate(size);
  std::memcpy(bytes, values.data(), size);
  NamedTensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.bytes = absl::MakeConstSpan(bytes, size);
  return tensor;
}

std::vector<float> Values(const NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::vector<ShardedTable> Tables(int64_t input_dim) {
  return {{"e.embeddings", /*dim=*/2, input_dim, "constant(9)"}};
}

// Of servers: rows 2 and 0 of three, with one slot.
Loaded OfServers() {
  Loaded loaded;
  loaded.variables.push_back(Tensor("a", {1}, {5}, loaded));
  loaded.variables.push_back(Tensor("z", {1}, {6}, loaded));
  checkpoint::EmbeddingRows rows;
  rows.name = "e.embeddings";
  rows.ids = {2, 0};
  rows.rows = Tensor("e.embeddings", {2, 2}, {1, 2, 3, 4}, loaded);
  rows.slots.push_back(
      Tensor("e.embeddings/m", {2, 2}, {10, 20, 30, 40}, loaded));
  loaded.embedding_tables.push_back(std::move(rows));
  return loaded;
}

TEST(TableFitTest, RowsBecomeAParameter) {
  Loaded loaded = OfServers();
  ASSERT_EQ(JoinTables(Tables(3), 1, {{"m", 0.5F}}, loaded), absl::OkStatus());
  EXPECT_THAT(loaded.embedding_tables, IsEmpty());
  ASSERT_THAT(loaded.variables, SizeIs(3));
  const NamedTensor* table = loaded.FindVariable("e.embeddings");
  ASSERT_NE(table, nullptr) << "they stay sorted";
  EXPECT_THAT(table->shape, ElementsAre(3, 2));
  EXPECT_THAT(Values(*table), ElementsAre(3, 4, 9, 9, 1, 2));
  const NamedTensor* slot = loaded.FindSlot("e.embeddings", "m");
  ASSERT_NE(slot, nullptr);
  EXPECT_THAT(Values(*slot), ElementsAre(30, 40, 0.5, 0.5, 10, 20));
  EXPECT_THAT(Values(*loaded.FindVariable("z")), ElementsAre(6));
}

TEST(TableFitTest, WhatIsAParameterStaysOne) {
  Loaded loaded = OfServers();
  loaded.variables.push_back(Tensor("other", {2, 2}, {1, 2, 3, 4}, loaded));
  std::swap(loaded.variables[1], loaded.variables[2]);
  checkpoint::EmbeddingRows kept;
  kept.name = "kept";
  loaded.embedding_tables.push_back(kept);
  std::vector<ShardedTable> tables = Tables(3);
  tables.push_back({"other", /*dim=*/2, /*input_dim=*/2, "zeros"});
  ASSERT_EQ(JoinTables(tables, 1, {}, loaded), absl::OkStatus());
  EXPECT_THAT(Values(*loaded.FindVariable("other")), ElementsAre(1, 2, 3, 4));
  ASSERT_NE(loaded.FindVariable("e.embeddings"), nullptr);
  // Tables that nobody asked for are left alone.
  ASSERT_THAT(loaded.embedding_tables, SizeIs(1));
  EXPECT_EQ(loaded.embedding_tables[0].name, "kept");
}

TEST(TableFitTest, ARowOfPaddingIsZero) {
  Loaded loaded = OfServers();
  std::vector<ShardedTable> tables = Tables(3);
  tables[0].zero_row = 1;
  ASSERT_EQ(JoinTables(tables, 1, {}, loaded), absl::OkStatus());
  EXPECT_THAT(Values(*loaded.FindVariable("e.embeddings")),
              ElementsAre(3, 4, 0, 0, 1, 2));
}

TEST(TableFitTest, AParameterBecomesRows) {
  Loaded loaded = OfServers();
  ASSERT_TRUE(JoinTables(Tables(3), 1, {{"m", 0.5F}}, loaded).ok());
  ASSERT_EQ(SplitTables(Tables(3), loaded), absl::OkStatus());
  EXPECT_THAT(loaded.variables, SizeIs(2));
  EXPECT_THAT(loaded.slots, IsEmpty());
  ASSERT_THAT(loaded.embedding_tables, SizeIs(1));
  const checkpoint::EmbeddingRows& rows = loaded.embedding_tables[0];
  EXPECT_THAT(rows.ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(Values(rows.rows), ElementsAre(3, 4, 9, 9, 1, 2));
  ASSERT_THAT(rows.slots, SizeIs(1));
  EXPECT_EQ(rows.slots[0].name, "e.embeddings/m");
}

TEST(TableFitTest, RowsOfServersStayWhereTheyAre) {
  Loaded loaded = OfServers();
  ASSERT_EQ(SplitTables(Tables(3), loaded), absl::OkStatus());
  EXPECT_THAT(loaded.embedding_tables[0].ids, ElementsAre(2, 0));
}

TEST(TableFitTest, IdsThatMayBeAnythingCannotBeConverted) {
  Loaded loaded = OfServers();
  const absl::Status joined = JoinTables(Tables(0), 1, {}, loaded);
  EXPECT_TRUE(absl::IsFailedPrecondition(joined));
  EXPECT_THAT(std::string(joined.message()), HasSubstr("e.embeddings"));
  loaded.variables.push_back(
      Tensor("e.embeddings", {3, 2}, {1, 2, 3, 4, 5, 6}, loaded));
  EXPECT_TRUE(absl::IsFailedPrecondition(SplitTables(Tables(0), loaded)));
}

TEST(TableFitTest, NamesWhatDoesNotFit) {
  Loaded loaded = OfServers();
  EXPECT_THAT(std::string(JoinTables(Tables(2), 1, {}, loaded).message()),
              HasSubstr("has a row 2, which is not in [0, 2)"));
  Loaded wide = OfServers();
  wide.embedding_tables[0].rows.bytes.remove_suffix(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(JoinTables(Tables(3), 1, {}, wide)));
  Loaded other;
  other.variables.push_back(Tensor("e.embeddings", {1, 2}, {1, 2}, other));
  EXPECT_TRUE(absl::IsFailedPrecondition(SplitTables(Tables(3), other)));
}

}  // namespace
}  // namespace elasticdl::worker
