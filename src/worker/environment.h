// What the worker's logic needs from its process: everything that has a thread,
// a clock or a disk. Tests run many workers in one process with an environment
// of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "batch_pipeline.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/rendezvous/world_link.h"
#include "minibatch.h"

namespace elasticdl::worker {

// Thread-safe.
class Environment {
 public:
  virtual ~Environment() = default;

  virtual const Clock& clock() = 0;
  // See BatchPipeline.
  virtual std::unique_ptr<MinibatchSource> MakePipeline(
      const PipelineOptions& options, model::Model& model,
      data::DataReader& reader, MinibatchSource::Sink sink) = 0;
  virtual std::unique_ptr<checkpoint::Saver> MakeSaver(
      const std::string& dir, const checkpoint::SaveOptions& options) = 0;
  virtual absl::StatusOr<checkpoint::Loaded> LoadCheckpoint(
      const std::string& path, const checkpoint::LoadOptions& options) = 0;
  // See WorldLink.
  virtual std::unique_ptr<rendezvous::WorldLink> MakeLink(
      const rendezvous::WorldLink::Options& options,
      std::function<void(v1::WorkerMessage)> send,
      std::function<void(int64_t generation)> connected) = 0;
  // Null: nothing is watched.
  virtual std::unique_ptr<elastic::Watchdog> MakeWatchdog(
      absl::Duration limit, elastic::Watchdog::Report report) = 0;

  // That of a worker process: threads, the machine's clock and disks. Lives for
  // ever.
  static Environment& Real();
};

}  // namespace elasticdl::worker
