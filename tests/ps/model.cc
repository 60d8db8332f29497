#include "model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "elasticdl/common/check.h"
#include "elasticdl/ps/dense_layout.h"
#include "elasticdl/ps/initializer.h"

namespace elasticdl::ps {
namespace {

std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& text) {
  auto optimizer = optim::Optimizer::Create(*optim::OptimizerSpec::Parse(text));
  ELASTICDL_CHECK(optimizer.ok());
  return *std::move(optimizer);
}

template <typename T>
void AppendRaw(const std::vector<T>& values, std::string& out) {
  out.append(reinterpret_cast<const char*>(values.data()),
             values.size() * sizeof(T));
}

void AppendDense(const std::vector<float>& values,
                 const v1::PsDefinition& definition, const BucketMap& map,
                 int server, std::string& out) {
  for (const DenseSlice& slice : DenseLayout(definition, map, server)) {
    out.append(reinterpret_cast<const char*>(values.data() + slice.offset),
               static_cast<size_t>(slice.size) * sizeof(float));
  }
}

}  // namespace

v1::PsDefinition TestDefinition(const std::string& optimizer) {
  v1::PsDefinition definition;
  definition.set_optimizer(optimizer);
  definition.set_seed(11);
  auto& large = *definition.add_dense();
  large.set_name("large");
  large.add_shape(5);
  large.add_shape(kChunkValues);
  auto& small = *definition.add_dense();
  small.set_name("small");
  small.add_shape(7);
  auto& wide = *definition.add_tables();
  wide.set_name("wide");
  wide.set_dim(8);
  wide.set_initializer("normal");
  auto& odd = *definition.add_tables();
  odd.set_name("odd");
  odd.set_dim(3);
  odd.set_initializer("uniform");
  return definition;
}

v1::PsMap ToProto(const BucketMap& map) {
  v1::PsMap out;
  out.set_version(map.version());
  out.set_servers(map.servers());
  for (const int owner : map.owners()) out.add_owners(owner);
  return out;
}

int64_t DenseCount(const v1::PsDefinition& definition) {
  return CountDense(definition).value();
}

std::vector<float> InitialDense(const v1::PsDefinition& definition) {
  std::mt19937_64 random(5);
  std::vector<float> values(static_cast<size_t>(DenseCount(definition)));
  std::uniform_real_distribution<float> value(-1, 1);
  for (float& v : values) v = value(random);
  return values;
}

Gradient RandomGradient(const v1::PsDefinition& definition, int64_t number,
                        std::mt19937_64& random) {
  std::uniform_real_distribution<float> value(-1, 1);
  Gradient gradient;
  gradient.name.set_shard("shard");
  gradient.name.set_begin(number * 64);
  gradient.name.set_end(number * 64 + 64);
  gradient.dense.resize(static_cast<size_t>(DenseCount(definition)));
  for (float& v : gradient.dense) v = value(random);
  for (const auto& table : definition.tables()) {
    std::set<int64_t> ids;
    const size_t count = random() % 100;
    while (ids.size() < count) {
      // Few ids often, others over the whole range.
      ids.insert(random() % 2 == 0 ? static_cast<int64_t>(random() % 50)
                                   : static_cast<int64_t>(random()));
    }
    gradient.ids.emplace_back(ids.begin(), ids.end());
    std::vector<float>& rows =
        gradient.rows.emplace_back(count * static_cast<size_t>(table.dim()));
    for (float& v : rows) v = value(random);
  }
  return gradient;
}

absl::Status Push(Client& client, const Gradient& gradient) {
  std::vector<PushRows> rows;
  for (size_t t = 0; t < gradient.ids.size(); ++t) {
    rows.push_back(
        {static_cast<uint32_t>(t), gradient.ids[t], gradient.rows[t].data()});
  }
  return client.Push(gradient.name, gradient.dense.data(), rows);
}

EntryBytes PartOf(const Gradient& gradient, const v1::PsDefinition& definition,
                  const BucketMap& map, int server) {
  EntryBytes part;
  v1::PsPush& push = *part.entry.mutable_push();
  push = gradient.name;
  push.set_map_version(map.version());
  push.set_dense(true);
  std::string rows;
  for (size_t t = 0; t < gradient.ids.size(); ++t) {
    const auto& table = definition.tables(static_cast<int>(t));
    const auto dim = static_cast<size_t>(table.dim());
    std::vector<int64_t> ids;
    for (size_t i = 0; i < gradient.ids[t].size(); ++i) {
      const int64_t id = gradient.ids[t][i];
      if (map.owner(BucketOf(HashRow(HashName(table.name()), id))) != server) {
        continue;
      }
      ids.push_back(id);
      rows.append(
          reinterpret_cast<const char*>(gradient.rows[t].data() + i * dim),
          dim * sizeof(float));
    }
    v1::PsTablePart& out = *push.add_parts();
    out.set_table(static_cast<uint32_t>(t));
    out.set_rows(ids.size());
    AppendRaw(ids, part.payload);
  }
  AppendDense(gradient.dense, definition, map, server, part.payload);
  part.payload += rows;
  return part;
}

EntryBytes InitialPart(const v1::PsDefinition& definition, const BucketMap& map,
                       int server) {
  EntryBytes part;
  part.entry.mutable_initial_values()->set_map_version(map.version());
  AppendDense(InitialDense(definition), definition, map, server, part.payload);
  return part;
}

ReferenceModel::ReferenceModel(const v1::PsDefinition& definition)
    : definition_(definition),
      optimizer_(MakeOptimizer(definition.optimizer())),
      dense_(InitialDense(definition)) {
  for (size_t s = 0; s < optimizer_->slot_names().size(); ++s) {
    dense_slots_.emplace_back(dense_.size(), optimizer_->initial_slot_value(s));
  }
}

ReferenceModel::Row_& ReferenceModel::Get(uint32_t table, int64_t id) {
  const auto [it, added] = rows_.try_emplace({table, id});
  Row_& row = it->second;
  if (!added) return row;
  const auto& definition = definition_.tables(static_cast<int>(table));
  row.values.resize(static_cast<size_t>(definition.dim()));
  Initializer::Parse(definition.initializer())
      ->Fill(definition_.seed(), HashRow(HashName(definition.name()), id),
             row.values.data(), row.values.size());
  for (size_t s = 0; s < optimizer_->slot_names().size(); ++s) {
    row.slots.emplace_back(row.values.size(),
                           optimizer_->initial_slot_value(s));
  }
  return row;
}

void ReferenceModel::Apply(const Gradient& gradient) {
  ++step_;
  const auto apply = [&](std::vector<float>& values, const float* grads,
                         std::vector<std::vector<float>>& slots) {
    std::vector<float*> pointers;
    for (auto& slot : slots) pointers.push_back(slot.data());
    optimizer_->Apply(values.data(), grads, pointers.data(), values.size(),
                      optimizer_->learning_rate(), step_);
  };
  apply(dense_, gradient.dense.data(), dense_slots_);
  for (size_t t = 0; t < gradient.ids.size(); ++t) {
    for (size_t i = 0; i < gradient.ids[t].size(); ++i) {
      Row_& row = Get(static_cast<uint32_t>(t), gradient.ids[t][i]);
      apply(row.values, gradient.rows[t].data() + i * row.values.size(),
            row.slots);
    }
  }
}

std::vector<float> ReferenceModel::Row(uint32_t table, int64_t id) {
  return Get(table, id).values;
}

}  // namespace elasticdl::ps
