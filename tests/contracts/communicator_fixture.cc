#include "contracts/communicator_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "contracts/gpu_libraries.h"
#include "contracts/staged_communicator.h"
#include "elasticdl/collective/mpi.h"
#include "elasticdl/collective/nccl.h"
#include "elasticdl/common/status.h"
#include "support/mpirun.h"

namespace elasticdl::collective {

std::vector<Backend> AllBackends() {
  if (WantsRealGpus()) return {{"Nccl", "nccl", 1}};
  Backend ucx = {"MpiUcx", "mpi", 1};
  ucx.ucx = true;
  return {{"Shm", "shm", 1},
          {"Tcp", "tcp", 1},
          {"TcpSparse", "tcp", 1, "", 0, absl::Seconds(30), /*full_mesh=*/1},
          {"Hierarchical", "auto", 2},
          {"Gloo", "gloo", 1},
          {"Mpi", "mpi", 1},
          ucx,
          {"NcclNull", "nccl", 1, "null"},
          {"NcclSide", "nccl", 1, "side"},
          {"NcclAll", "nccl", 1, "all"}};
}

WorldSpec MakeSpec(const Backend& backend, int64_t generation, int rank,
                   int size) {
  WorldSpec spec;
  spec.generation = generation;
  spec.rank = rank;
  spec.secret = "the job's secret";
  spec.full_mesh = backend.full_mesh;
  for (int i = 0; i < size; ++i) {
    spec.hosts.push_back(absl::StrCat("host-", i % backend.hosts));
  }
  return spec;
}

namespace {

// Of this process; null if it is not a rank of an mpirun.
absl::StatusOr<std::shared_ptr<MpiUniverse>> Universe() {
  if (!RankProcesses::IsMpiRank()) return nullptr;
  static auto* const universe = [] {
    MpiOptions options;
    options.plugin = ELASTICDL_MPI_PLUGIN;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      options.variables.insert(
          absl::StrSplit(*variable, absl::MaxSplits('=', 1)));
    }
    return new absl::StatusOr<std::shared_ptr<MpiUniverse>>(OpenMpi(options));
  }();
  return *universe;
}

// More than any world has members.
constexpr int kDevices = 16;

// Of this process and one of its devices. Never destroyed, like a worker's.
absl::StatusOr<std::shared_ptr<NcclRuntime>> Nccl(const Backend& backend,
                                                  int device) {
  using Runtimes = std::map<int, std::shared_ptr<NcclRuntime>>;
  static auto* const runtimes = [&backend] {
    if (!WantsRealGpus()) PrepareDevices(kDevices, backend.schedule);
    return new Runtimes;
  }();
  std::shared_ptr<NcclRuntime>& runtime = (*runtimes)[device];
  if (runtime == nullptr) {
    NcclOptions options;
    options.plugin = ELASTICDL_NCCL_PLUGIN;
    options.device = device;
    options.abort_patience = backend.abort_patience;
    ELASTICDL_ASSIGN_OR_RETURN(runtime, OpenNccl(options));
  }
  return runtime;
}

// The ranks whose offers this one must have.
std::vector<int> NeededBy(const Backend& backend, const WorldSpec& spec) {
  if (backend.option == "tcp") {
    return Peers(spec.size(), spec.rank, spec.full_mesh);
  }
  const auto needed = NeededOffers(spec.hosts, backend.option);
  if (!needed.empty()) return needed[static_cast<size_t>(spec.rank)];
  std::vector<int> all(static_cast<size_t>(spec.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> Begin(const Backend& backend,
                                                 const WorldSpec& spec) {
  BackendOptions options;
  options.backend = backend.option;
  options.address = "127.0.0.1";
  if (backend.option == "mpi") {
    ELASTICDL_ASSIGN_OR_RETURN(options.mpi, Universe());
  }
  if (backend.option == "nccl") {
    ELASTICDL_ASSIGN_OR_RETURN(options.nccl,
                               Nccl(backend, backend.first_device + spec.rank));
  }
  return BeginConnect(spec, options);
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectThrough(
    const Backend& backend, const WorldSpec& spec, Channel& test) {
  ELASTICDL_ASSIGN_OR_RETURN(auto connector, Begin(backend, spec));
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<std::string> offers,
                             ExchangeWithAll(test, connector->offer()));
  const std::vector<int> needed = NeededBy(backend, spec);
  for (int rank = 0; rank < spec.size(); ++rank) {
    // Nobody needs to send it.
    if (rank != spec.rank &&
        !std::binary_search(needed.begin(), needed.end(), rank)) {
      offers[static_cast<size_t>(rank)].clear();
    }
  }
  ELASTICDL_ASSIGN_OR_RETURN(auto world, connector->Connect(offers, kLong));
  // Later ones do not if a death has damaged MPI.
  if (backend.option == "mpi" && spec.size() > 1 && spec.generation == 1) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto universe, Universe());
    if (NumMpiWorlds(*universe) != 1) {
      return absl::InternalError("the world does not use MPI");
    }
  }
  if (backend.option == "nccl" && spec.size() > 1) {
    return StageOnDevice(std::move(world));
  }
  return world;
}

const std::vector<Operation>& AllOperations() {
  static const auto* const operations =
      new std::vector<Operation>{{"AllReduce", "collective.all_reduce"},
                                 {"Broadcast", "collective.broadcast"},
                                 {"AllGather", "collective.all_gather"},
                                 {"ReduceScatter", "collective.reduce_scatter"},
                                 {"Barrier", "collective.barrier"}};
  return *operations;
}

absl::Status RunOperation(const std::string& name, Communicator& world,
                          size_t bytes, absl::Duration timeout) {
  const size_t count = bytes / sizeof(float);
  if (name == "AllReduce") {
    std::vector<float> data(count, 1);
    absl::Status status =
        world.AllReduce(data.data(), count, DataType::kFloat32, timeout);
    if (LeftDataAlone(status) &&
        static_cast<size_t>(std::count(data.begin(), data.end(), 1.0F)) !=
            data.size()) {
      return absl::InternalError(
          absl::StrCat("wrote to its data and denies it: ", status.message()));
    }
    return status;
  }
  if (name == "Broadcast") {
    std::vector<char> data(bytes, 'b');
    return world.Broadcast(data.data(), bytes, world.size() - 1, timeout);
  }
  if (name == "AllGather") {
    std::vector<char> in(bytes, 'g');
    std::vector<char> out(bytes * static_cast<size_t>(world.size()));
    return world.AllGather(in.data(), out.data(), bytes, timeout);
  }
  if (name == "ReduceScatter") {
    std::vector<float> data(count * static_cast<size_t>(world.size()), 1);
    return world.ReduceScatter(data.data(), count, DataType::kFloat32, timeout);
  }
  return world.Barrier(timeout);
}

namespace {

GpuDecision DecideHere() {
  return Decide(FindGpuLibraries(),
                std::getenv("ELASTICDL_TEST_GPUS_ARE_DOUBLES") != nullptr);
}

}  // namespace

void CommunicatorTest::SetUp() {
  const bool mpi = GetParam().option == "mpi";
  const bool ucx = GetParam().ucx;
  RankProcesses::Use(
      mpi ? RankProcesses::Launch::kMpirun : RankProcesses::Launch::kFork,
      ucx ? test::MpirunUcx() : std::vector<std::string>());
  if (mpi && access(ELASTICDL_MPI_PLUGIN, R_OK) != 0) {
    GTEST_SKIP() << "built without MPI";
  }
  if (ucx && !test::MpiHasUcx()) GTEST_SKIP() << "Open MPI has no UCX here";
  if (GetParam().option == "nccl") {
    // Ranks are forked, and whoever has used CUDA must not fork.
    const GpuDecision decision = DecideHere();
    if (decision.verdict == GpuVerdict::kSkip) {
      GTEST_SKIP() << decision.reason;
    }
    ASSERT_EQ(decision.reason, "");
    return;
  }
  const absl::Status status =
      Begin(GetParam(), MakeSpec(GetParam(), 1, 0, 2)).status();
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status.message();
}

int CommunicatorTest::Members(int wanted) const {
  if (GetParam().option != "nccl") return wanted;
  return std::min(wanted, DecideHere().most_members);
}

std::vector<int> CommunicatorTest::Ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void CommunicatorTest::RunWorld(int size, const Body& body) {
  RankProcesses ranks(size, [&](int rank, Channel& test) -> std::string {
    auto world =
        ConnectThrough(GetParam(), MakeSpec(GetParam(), 1, rank, size), test);
    RANK_EXPECT_OK(world.status());
    RANK_EXPECT((*world)->rank() == rank);
    RANK_EXPECT((*world)->size() == size);
    return body(**world);
  });
  ASSERT_TRUE(ranks.Exchange(Ranks(size)).ok());
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(ranks.Result(rank), "") << "rank " << rank << " of " << size;
  }
}

}  // namespace elasticdl::collective
