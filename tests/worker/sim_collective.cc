#include "sim_collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "stage.h"

namespace elasticdl::worker::test {

class SimCommunicator : public collective::Communicator {
 public:
  SimCommunicator(SimNetwork& network, std::shared_ptr<SimNetwork::World> world,
                  int rank)
      : network_(network), world_(std::move(world)), rank_(rank) {}
  ~SimCommunicator() override {
    // Others notice that the connections are closed.
    if (world_->broken.empty()) world_->broken = "a member closed the world";
  }

  int rank() const override { return rank_; }
  int size() const override { return world_->size; }

  absl::Status AllReduce(void* data, size_t count, collective::DataType type,
                         absl::Duration) override {
    ELASTICDL_CHECK(type == collective::DataType::kFloat32);
    const size_t bytes = count * sizeof(float);
    const auto met = Meet("all-reduce", data, bytes);
    if (!met.ok()) return EndSum(met.status(), data, count);
    const auto* all = *met;
    std::vector<float> sum(count);
    std::vector<float> one(count);
    for (const std::vector<char>& part : *all) {
      ELASTICDL_CHECK(part.size() == bytes);
      std::memcpy(one.data(), part.data(), bytes);
      for (size_t i = 0; i < count; ++i) sum[i] += one[i];
    }
    std::memcpy(data, sum.data(), bytes);
    return absl::OkStatus();
  }
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration) override {
    ELASTICDL_ASSIGN_OR_RETURN(
        const auto* all, Meet(absl::StrCat("broadcast ", root, " ", bytes),
                              data, rank_ == root ? bytes : 0));
    const std::vector<char>& source = (*all)[static_cast<size_t>(root)];
    ELASTICDL_CHECK(source.size() == bytes);
    if (bytes > 0) std::memcpy(data, source.data(), bytes);
    return absl::OkStatus();
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration) override {
    ELASTICDL_ASSIGN_OR_RETURN(const auto* all, Meet("all-gather", in, bytes));
    char* next = static_cast<char*>(out);
    for (const std::vector<char>& part : *all) {
      ELASTICDL_CHECK(part.size() == bytes);
      std::memcpy(next, part.data(), bytes);
      next += bytes;
    }
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(void*, size_t, collective::DataType,
                             absl::Duration) override {
    return absl::UnimplementedError("not used by workers");
  }
  absl::Status Barrier(absl::Duration) override {
    ELASTICDL_RETURN_IF_ERROR(Failpoint("sim.barrier"));
    return Meet("barrier", nullptr, 0).status();
  }
  void Abort(const std::string& reason) override {
    if (world_->broken.empty()) world_->broken = reason;
    aborted_ = true;
  }
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Shrink(
      const std::vector<int>& ranks, int64_t generation) override {
    ELASTICDL_CHECK(can_shrink());
    Abort("a smaller world takes its place");
    if (network_.Happens(network_.failures_per_mille)) {
      return absl::AbortedError("no smaller world");
    }
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    ELASTICDL_CHECK(own != ranks.end());
    return std::make_unique<SimCommunicator>(
        network_, network_.Shrink(*world_, ranks, generation),
        static_cast<int>(own - ranks.begin()));
  }
  bool can_shrink() const override { return world_->can_shrink; }

 private:
  // Waits for all members and gives what each has brought.
  absl::StatusOr<const std::vector<std::vector<char>>*> Meet(
      const std::string& name, const void* data, size_t bytes) {
    if (aborted_ || failed_ || !world_->broken.empty()) return Broken();
    const int64_t number = next_++;
    SimNetwork::Operation& operation = world_->operations[number];
    if (operation.contributions.empty()) {
      operation.name = name;
      operation.contributions.resize(static_cast<size_t>(world_->size));
    }
    // Members of one world do the same things in the same order.
    ELASTICDL_CHECK(operation.name == name);
    const char* begin = static_cast<const char*>(data);
    if (bytes > 0) {
      operation.contributions[static_cast<size_t>(rank_)].assign(begin,
                                                                 begin + bytes);
    }
    ++operation.arrived;
    Actor::Wait([this, &operation] {
      return operation.arrived == world_->size || !world_->broken.empty();
    });
    if (operation.arrived < world_->size) return Broken();
    if (!world_->broken.empty() && (aborted_ || network_.LateBreak())) {
      return Broken();
    }
    // All have brought theirs for this one, so they have taken those before it.
    world_->operations.erase(world_->operations.begin(),
                             world_->operations.find(number));
    return &operation.contributions;
  }
  // A sum that fails leaves its data as it was, or anything in it.
  absl::Status EndSum(const absl::Status& status, void* data, size_t count) {
    if (network_.Happens(network_.left_alone_per_mille)) {
      return collective::MarkData(true, status);
    }
    float* const floats = static_cast<float*>(data);
    for (size_t i = 0; i < count; ++i) floats[i] = 1e10F;
    return status;
  }
  absl::Status Broken() {
    failed_ = true;
    return absl::AbortedError(world_->broken);
  }

  SimNetwork& network_;
  // Shared by its members.
  const std::shared_ptr<SimNetwork::World> world_;
  const int rank_;
  int64_t next_ = 0;
  bool aborted_ = false;
  bool failed_ = false;
};

class SimConnector : public collective::Connector {
 public:
  SimConnector(SimNetwork& network, const collective::WorldSpec& spec)
      : network_(network),
        generation_(spec.generation),
        rank_(spec.rank),
        offer_(absl::StrCat(spec.generation, ":", spec.rank)) {}

  const std::string& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration) override {
    if (!aborted_.empty()) return absl::AbortedError(aborted_);
    SimNetwork::World& world = *network_.worlds_.at(generation_);
    ELASTICDL_CHECK(offers.size() == static_cast<size_t>(world.size));
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      ELASTICDL_CHECK(offers[rank] == absl::StrCat(generation_, ":", rank));
    }
    if (network_.Happens(network_.failures_per_mille)) {
      return absl::AbortedError("no connection");
    }
    return std::make_unique<SimCommunicator>(
        network_, network_.worlds_.at(generation_), rank_);
  }
  void Abort(const std::string& reason) override { aborted_ = reason; }

 private:
  SimNetwork& network_;
  const int64_t generation_;
  const int rank_;
  const std::string offer_;
  std::string aborted_;
};

bool SimNetwork::Happens(int per_mille) {
  return static_cast<int>(random_() % 1000) < per_mille;
}

bool SimNetwork::LateBreak() { return Happens(500); }

absl::StatusOr<std::unique_ptr<collective::Connector>> SimNetwork::Begin(
    int64_t worker_id, const collective::WorldSpec& spec) {
  std::shared_ptr<World>& world = worlds_[spec.generation];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->size = spec.size();
    world->members.assign(static_cast<size_t>(spec.size()), -1);
    world->can_shrink = Happens(shrinks_per_mille);
  }
  world->members[static_cast<size_t>(spec.rank)] = worker_id;
  return std::make_unique<SimConnector>(*this, spec);
}

std::shared_ptr<SimNetwork::World> SimNetwork::Shrink(
    const World& from, const std::vector<int>& ranks, int64_t generation) {
  std::shared_ptr<World>& world = worlds_[generation];
  if (world != nullptr) return world;
  ++num_shrunk;
  world = std::make_shared<World>();
  world->size = static_cast<int>(ranks.size());
  world->can_shrink = Happens(shrinks_per_mille);
  for (const int rank : ranks) {
    world->members.push_back(from.members.at(static_cast<size_t>(rank)));
    if (lost_.count(world->members.back()) > 0) {
      world->broken = "a member was gone before";
    }
  }
  return world;
}

void SimNetwork::Lost(int64_t worker_id) {
  lost_.insert(worker_id);
  for (auto& [generation, world] : worlds_) {
    const auto& members = world->members;
    if (std::find(members.begin(), members.end(), worker_id) != members.end() &&
        world->broken.empty()) {
      world->broken = absl::StrCat("worker ", worker_id, " is gone");
    }
  }
}

}  // namespace elasticdl::worker::test
