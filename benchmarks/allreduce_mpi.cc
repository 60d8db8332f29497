// All-reduce between the ranks of an mpirun, for allreduce_bench:
//   allreduce_mpi library      MPI_Allreduce
//   allreduce_mpi elasticdl    ElasticDL's backend mpi
#include <mpi.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "allreduce_plan.h"
#include "elasticdl/collective/communicator.h"
#include "elasticdl/collective/mpi.h"

namespace elasticdl::benchmarks {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr size_t kOfferBytes = 4096;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  _exit(1);
}

int Rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int Size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void MeasureLibrary() {
  MPI_Init(nullptr, nullptr);
  Measure(
      Rank() == 0, Size(),
      [](float* data, size_t count) {
        MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT,
                      MPI_SUM, MPI_COMM_WORLD);
      },
      [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
}

collective::MpiOptions OwnOptions() {
  char path[4096] = "";
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  collective::MpiOptions options;
  options.plugin = program.substr(0, program.rfind('/')) +
                   "/../lib/elasticdl/libelasticdl_mpi.so";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    options.variables.insert(
        absl::StrSplit(*variable, absl::MaxSplits('=', 1)));
  }
  return options;
}

// MPI stands in for the master, which hands the offers around.
std::vector<std::string> Exchange(const std::string& offer) {
  std::vector<char> own(kOfferBytes);
  const uint32_t bytes = static_cast<uint32_t>(offer.size());
  std::memcpy(own.data(), &bytes, sizeof(bytes));
  std::memcpy(own.data() + sizeof(bytes), offer.data(), offer.size());
  std::vector<char> all(kOfferBytes * static_cast<size_t>(Size()));
  MPI_Allgather(own.data(), kOfferBytes, MPI_BYTE, all.data(), kOfferBytes,
                MPI_BYTE, MPI_COMM_WORLD);
  std::vector<std::string> offers;
  for (size_t at = 0; at < all.size(); at += kOfferBytes) {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof(length));
    offers.emplace_back(all.data() + at + sizeof(length), length);
  }
  return offers;
}

void MeasureElasticdl() {
  auto universe = collective::OpenMpi(OwnOptions());
  Check(universe.status());
  collective::WorldSpec world;
  world.generation = 1;
  world.rank = Rank();
  world.hosts.assign(static_cast<size_t>(Size()), "here");
  world.secret = "secret";
  collective::BackendOptions backend;
  backend.backend = "mpi";
  backend.mpi = *universe;
  auto connector = collective::BeginConnect(world, backend);
  Check(connector.status());
  auto communicator =
      (*connector)->Connect(Exchange((*connector)->offer()), kTimeout);
  Check(communicator.status());
  if (collective::NumMpiWorlds(**universe) != 1) {
    Check(absl::InternalError("the world does not use MPI"));
  }
  Measure(
      world.rank == 0, world.size(),
      [&](float* data, size_t count) {
        Check((*communicator)
                  ->AllReduce(data, count, collective::DataType::kFloat32,
                              kTimeout));
      },
      [&] { Check((*communicator)->Barrier(kTimeout)); });
  // Nobody may leave before the others have finished.
  Check((*communicator)->Barrier(kTimeout));
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace
}  // namespace elasticdl::benchmarks

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "elasticdl") {
    elasticdl::benchmarks::MeasureElasticdl();
  } else {
    elasticdl::benchmarks::MeasureLibrary();
  }
  return 0;
}
