// A model for tests of parameter servers, random pushes to it, and the plainest
// possible server to compare with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/optim.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Two dense parameters (one of several chunks) and two tables.
v1::PsDefinition TestDefinition(const std::string& optimizer);
v1::PsMap ToProto(const BucketMap& map);
int64_t DenseCount(const v1::PsDefinition& definition);
std::vector<float> InitialDense(const v1::PsDefinition& definition);

// A minibatch's gradient for the whole model.
struct Gradient {
  v1::PsPush name;
  std::vector<float> dense;
  // By table.
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<float>> rows;
};
Gradient RandomGradient(const v1::PsDefinition& definition, int64_t number,
                        std::mt19937_64& random);
absl::Status Push(Client& client, const Gradient& gradient);

// The part of it that `server` gets: header and payload.
struct EntryBytes {
  v1::PsEntry entry;
  std::string payload;
};
EntryBytes PartOf(const Gradient& gradient, const v1::PsDefinition& definition,
                  const BucketMap& map, int server);
EntryBytes InitialPart(const v1::PsDefinition& definition, const BucketMap& map,
                       int server);

// The whole model in one place, one value after the other, without buckets,
// logs or batches.
class ReferenceModel {
 public:
  explicit ReferenceModel(const v1::PsDefinition& definition);
  void Apply(const Gradient& gradient);
  const std::vector<float>& dense() const { return dense_; }
  std::vector<float> Row(uint32_t table, int64_t id);

 private:
  struct Row_ {
    std::vector<float> values;
    std::vector<std::vector<float>> slots;
  };
  Row_& Get(uint32_t table, int64_t id);

  const v1::PsDefinition definition_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<float> dense_;
  std::vector<std::vector<float>> dense_slots_;
  std::map<std::pair<uint32_t, int64_t>, Row_> rows_;
  int64_t step_ = 0;
};

}  // namespace elasticdl::ps
