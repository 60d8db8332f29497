#include "exact_model.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "elasticdl/ps/dense_layout.h"

namespace elasticdl::ps {

v1::PsDefinition ExactDefinition() {
  v1::PsDefinition definition;
  definition.set_optimizer("SGD(lr=1)");
  for (int i = 0; i < 40; ++i) {
    auto& dense = *definition.add_dense();
    dense.set_name("d" + std::to_string(i));
    dense.add_shape(3);
  }
  auto& table = *definition.add_tables();
  table.set_name("t");
  table.set_dim(2);
  table.set_initializer("zeros");
  return definition;
}

Gradient ExactGradient(const v1::PsDefinition& definition, int64_t number) {
  std::mt19937_64 random(static_cast<uint64_t>(number) + 1000);
  Gradient gradient;
  gradient.name.set_shard("s");
  gradient.name.set_begin(number * 8);
  gradient.name.set_end(number * 8 + 8);
  gradient.dense.resize(static_cast<size_t>(DenseCount(definition)));
  for (float& v : gradient.dense) v = static_cast<float>(random() % 7) - 3;
  std::set<int64_t> ids;
  while (ids.size() < 30) ids.insert(static_cast<int64_t>(random() % 200));
  gradient.ids.emplace_back(ids.begin(), ids.end());
  gradient.rows.emplace_back(ids.size() * 2);
  for (float& v : gradient.rows[0]) v = static_cast<float>(random() % 7) - 3;
  return gradient;
}

absl::Status TestServer::Accept(const v1::PsEntry& entry,
                                const std::string& payload) {
  const absl::Status checked = state->Check(entry, payload);
  if (!checked.ok()) return checked;
  log.push_back({entry, payload});
  return state->Apply(entry, payload);
}

void TestServer::Restart() {
  const uint64_t digest = state->Digest();
  state = Fresh();
  for (const EntryBytes& entry : log) {
    ASSERT_TRUE(state->Check(entry.entry, entry.payload).ok());
    ASSERT_TRUE(state->Apply(entry.entry, entry.payload).ok());
  }
  ASSERT_EQ(state->Digest(), digest);
}

void Begin(const v1::PsDefinition& definition, const BucketMap& map,
           std::vector<TestServer>& servers) {
  for (int i = 0; i < map.servers(); ++i) {
    TestServer& server = servers[static_cast<size_t>(i)];
    v1::PsEntry entry;
    *entry.mutable_definition() = definition;
    EXPECT_TRUE(server.Accept(entry, "").ok());
    *entry.mutable_map() = ToProto(map);
    EXPECT_TRUE(server.Accept(entry, "").ok());
    entry.mutable_initial_values()->set_map_version(map.version());
    size_t count = 0;
    for (const DenseSlice& slice : DenseLayout(definition, map, i)) {
      count += static_cast<size_t>(slice.size);
    }
    EXPECT_TRUE(server.Accept(entry, std::string(count * 4, '\0')).ok());
  }
}

void ExpectExact(const v1::PsDefinition& definition, const BucketMap& map,
                 int64_t count, const TestServer& server) {
  std::vector<float> dense(static_cast<size_t>(DenseCount(definition)));
  std::map<int64_t, std::vector<float>> rows;
  for (int64_t n = 0; n < count; ++n) {
    const Gradient gradient = ExactGradient(definition, n);
    for (size_t i = 0; i < dense.size(); ++i) dense[i] -= gradient.dense[i];
    for (size_t i = 0; i < gradient.ids[0].size(); ++i) {
      std::vector<float>& row = rows[gradient.ids[0][i]];
      row.resize(2);
      for (size_t d = 0; d < 2; ++d) row[d] -= gradient.rows[0][i * 2 + d];
    }
  }
  const ServerState& state = *server.state;
  EXPECT_EQ(state.version(), count) << "server " << server.id;
  size_t at = 0;
  for (const DenseSlice& slice : DenseLayout(definition, map, server.id)) {
    for (int64_t i = 0; i < slice.size; ++i) {
      ASSERT_EQ(state.dense()[0][at++],
                dense[static_cast<size_t>(slice.offset + i)])
          << "server " << server.id << ", value " << slice.offset + i;
    }
  }
  int64_t mine = 0;
  for (const auto& [id, values] : rows) {
    if (map.owner(BucketOf(HashRow(HashName("t"), id))) != server.id) continue;
    ++mine;
    std::vector<float> got(2);
    state.tables()[0]->Pull({&id, 1}, got.data());
    ASSERT_EQ(got, values) << "server " << server.id << ", row " << id;
  }
  EXPECT_EQ(state.tables()[0]->rows(), mine);
}

}  // namespace elasticdl::ps
