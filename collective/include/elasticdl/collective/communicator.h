// Collective operations among the members of one world (generation). Every
// backend must pass the contract suite (tests/contracts).
//
// A world is connected in two steps, because members must know each other's
// addresses first, and only the master reaches all of them:
//
//   Connector::Begin(world) -> offer()  --master-->  all offers
//   Connector::Connect(offers)          ---------->  Communicator
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/collective/topology.h"

namespace elasticdl::collective {

class DeviceCommunicator;

enum class DataType { kFloat32, kBFloat16, kFloat16, kInt64 };
size_t SizeOf(DataType type);

// The operations of all members must be called in the same order, by one thread
// at a time; Abort may be called by any thread at any time. A call returns
// ABORTED when the world is broken: a member died, left or aborted, or Abort
// was called here; DEADLINE_EXCEEDED when `timeout` passed. After any error the
// communicator cannot be used any more and every later call fails at once; the
// content of buffers is undefined, except where LeftDataAlone says otherwise.
// Results are bitwise equal on all members.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sum, in place. bf16 and fp16 are summed in float and rounded once per hop.
  virtual absl::Status AllReduce(void* data, size_t count, DataType type,
                                 absl::Duration timeout) = 0;
  // Copies `data` of `root` to all.
  virtual absl::Status Broadcast(void* data, size_t bytes, int root,
                                 absl::Duration timeout) = 0;
  // `bytes` of every member, in the order of ranks; `out` has size() * bytes.
  virtual absl::Status AllGather(const void* in, void* out, size_t bytes,
                                 absl::Duration timeout) = 0;
  // `data` has size() blocks of `count` elements. On return the block of this
  // rank is the sum of that block over all members; other blocks are undefined.
  virtual absl::Status ReduceScatter(void* data, size_t count, DataType type,
                                     absl::Duration timeout) = 0;
  virtual absl::Status Barrier(absl::Duration timeout) = 0;

  // Breaks the world for this member, and soon for all: the current call and
  // all later ones fail with ABORTED and `reason`. Never blocks. Idempotent.
  virtual void Abort(const std::string& reason) = 0;

  // A communicator of some members of this one, which is aborted: those with
  // `ranks`, in this order, one of which is this member. The others need not
  // even be alive. Does not wait for anybody; all of `ranks` must call it, with
  // the same ranks and a generation that was not used before. ABORTED: a world
  // of another generation has taken its place. The result may outlive this one.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Shrink(
      const std::vector<int>& /*ranks*/, int64_t /*generation*/) {
    return absl::UnimplementedError("this backend cannot shrink a world");
  }
  // Shrink works; the same on all members. Otherwise it is UNIMPLEMENTED.
  virtual bool can_shrink() const { return false; }

  // The operations on GPU memory (device_communicator.h); null: this
  // communicator supports host memory only. All operations above take host
  // memory.
  virtual DeviceCommunicator* device() { return nullptr; }
};

struct WorldSpec {
  int64_t generation = 0;
  int rank = 0;
  // Of every rank: members with the same host can share memory. LocalHost() of
  // each member's process.
  std::vector<std::string> hosts;
  // Known only to the members of the job; peers that cannot prove that they
  // know it are refused.
  std::string secret;
  // Worlds of more members are not a full mesh; tests choose others.
  int full_mesh = kFullMeshMembers;
  // False: after a death, members connect again. Set where this backend only
  // stands in for another one, which the survivors may be able to use.
  bool may_shrink = true;

  int size() const { return static_cast<int>(hosts.size()); }
};

// The rank that an error of a communicator or connector blames for the broken
// world; -1 = none. It is a payload of the error, whatever the message says.
// The reasons of Abort blame nobody. A member blames a peer that is silent, and
// also one that gave up. So if the connection between two members is lost,
// these two blame each other, the rest blame one of the two, and nobody blames
// the rest.
int BlamedRank(const absl::Status& status);
// NCCL could not do it, though all members were there: without NCCL the world
// might do better.
bool IsNcclFailure(const absl::Status& status);

// An AllReduce that failed with this has not written to its data: no member has
// the sum of all of it, or this one was not there to get it. Not every backend
// knows.
bool LeftDataAlone(const absl::Status& status);
// For backends: `status` of an AllReduce that says so, or not.
absl::Status MarkData(bool left_alone, absl::Status status);

// A name for this process's host: two processes with the same name see the same
// /dev/shm and each other's process ids, so they can share memory.
std::string LocalHost();

// Thread-safe: Abort may be called by any thread.
class Connector {
 public:
  virtual ~Connector() = default;
  // What the others must know about this member; opaque bytes.
  virtual const std::string& offer() const = 0;
  // The members' offers, by rank; those that this one does not need
  // (topology.h) may be empty. Blocks until all are connected; once only.
  // ABORTED after Abort, DEADLINE_EXCEEDED after `timeout`, INVALID_ARGUMENT
  // for offers that cannot be understood.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      const std::vector<std::string>& offers, absl::Duration timeout) = 0;
  virtual void Abort(const std::string& reason) = 0;
};

// "auto": shared memory on one host, sockets between hosts, both where several
// members share a host. "shm": one host only. "tcp": sockets everywhere.
// "gloo": the Gloo library, for networks where every host is trusted (README);
// UNIMPLEMENTED if this program was built without it. "mpi": MPI where all
// members were started by one mpirun, else as "auto". "nccl": as "auto", and
// device() if every member has a GPU of its own.
class MpiUniverse;
class NcclRuntime;
struct BackendOptions {
  std::string backend = "auto";
  // Address that other members reach this one at; empty = the loopback when all
  // are on one host, else OwnAddress(master_address).
  std::string address;
  // HOST:PORT of the master, which all members reach.
  std::string master_address;
  // OpenMpi, of this process; null = none. Shared with all its worlds.
  std::shared_ptr<MpiUniverse> mpi = nullptr;
  // The CUDA device that this process trains on; -1: none.
  int cuda_device = -1;
  // OpenNccl, of this process; null = none. Shared with all its worlds.
  std::shared_ptr<NcclRuntime> nccl = nullptr;
};
bool IsBackend(const std::string& name);

// The address of this host, as a number, at which other hosts reach it: the one
// that packets to `peer` (HOST:PORT) carry. Not by the host's name, which is
// 127.0.1.1 on many systems. If the peer is on this host, too, and named by the
// loopback: the first other address of the host's name or of an interface that
// is up; the loopback when there is no other.
std::string OwnAddress(const std::string& peer);

// INVALID_ARGUMENT if the backend cannot connect this world.
absl::StatusOr<std::unique_ptr<Connector>> BeginConnect(
    const WorldSpec& world, const BackendOptions& options);

}  // namespace elasticdl::collective
