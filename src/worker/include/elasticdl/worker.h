// A worker process: attaches to its master, trains, evaluates and predicts what
// it is given. No libtorch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace elasticdl::worker {

struct WorkerOptions {
  std::string master_addr = "localhost:50001";
  std::string token;
  // Below 0: the master gives one.
  int64_t worker_id = -1;
  // Called once, when the id is known: the log's tag can tell it. May be empty.
  std::function<void(int64_t worker_id)> named;
  // Where workers on other hosts reach this one; empty = the address by which
  // it reaches the master (collective::OwnAddress).
  std::string worker_address;
  absl::Duration connect_timeout = absl::Seconds(30);
  // Replace what the master says, unless empty. A model that cannot be loaded
  // then ends this worker only; one that the master named ends the job.
  std::string model_zoo;
  std::string model_def;
  std::string model_params;
  // Threads for tensor operations; 0: what the master says, or all cores.
  int num_threads = 0;
  // auto, cpu, cuda or cuda:N; empty: what the master says.
  std::string device;
  // Where the workers of this host tell each other which GPUs they use.
  std::string gpu_lock_dir;
  // Where compiled models are kept, and the program whose toolchain file says
  // how to compile (elasticdl/model/compiler.h).
  std::string model_cache_dir;
  std::string executable;
  // For --collective=mpi: the MPI plugin, and the environment variables of this
  // process, KEY=VALUE, which show whether an MPI launcher started it.
  std::string mpi_plugin;
  std::vector<std::string> environment;
  // For --collective=nccl: the library with which NCCL is used.
  std::string nccl_plugin;
  // Ends the process without its destructors: they would use a device that
  // failed. Called by Run; must be set.
  std::function<void(int code)> end_at_once;
};

// Thread-safe.
class Worker {
 public:
  static std::unique_ptr<Worker> Create(WorkerOptions options);
  virtual ~Worker() = default;

  // Runs until the job is over. The exit code: 0 = done or left in an orderly
  // way, otherwise the reason is in the log. Call once.
  virtual int Run() = 0;

  // Leave: finish the step, hand the data back, return from Run with 0. May be
  // called from any thread; idempotent.
  virtual void Leave() = 0;

  // After Run: MPI was loaded, so the process must end with _exit.
  virtual bool used_mpi() const = 0;
};

// Exit codes of a worker beside 0.
inline constexpr int kExitFailed = 1;      // this job cannot work here
inline constexpr int kExitMasterLost = 3;  // the stream to the master broke
inline constexpr int kExitDevice = 6;      // its GPU failed; others may train

// Of this process, before it trains: a step allocates and frees the same large
// buffers as the one before. By default their pages are returned to the kernel
// each time and are zeroed when they are mapped again, which took a quarter of
// a convolution's time.
void KeepFreedMemory();
// Of this process, before it computes and before it has threads: oneDNN 2.6,
// which libtorch 1.13 uses for bf16 on the CPU, ends with an illegal
// instruction in its kernels for AMX. A user's ONEDNN_MAX_CPU_ISA takes
// precedence.
void AvoidAmx();

// One thing that a worker can compute with.
struct DeviceFact {
  bool found = false;
  std::string name;
  // What was found, or why it cannot be used.
  std::string detail;
  // What to do if it was not found.
  std::string advice;
};
// What workers with these options would find on this machine (--show_devices).
std::vector<DeviceFact> DescribeDevices(const WorkerOptions& options);

// Compiles the model and returns the path of the result (--compile_only).
absl::StatusOr<std::string> CompileModel(const WorkerOptions& options);

}  // namespace elasticdl::worker
