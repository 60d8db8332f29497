#include "environment.h"

#include <utility>

namespace elasticdl::worker {
namespace {

class RealEnvironment : public Environment {
 public:
  const Clock& clock() override { return Clock::Real(); }
  std::unique_ptr<MinibatchSource> MakePipeline(
      const PipelineOptions& options, model::Model& model,
      data::DataReader& reader, MinibatchSource::Sink sink) override {
    return std::make_unique<BatchPipeline>(options, model, reader,
                                           std::move(sink));
  }
  std::unique_ptr<checkpoint::Saver> MakeSaver(
      const std::string& dir, const checkpoint::SaveOptions& options) override {
    return std::make_unique<checkpoint::AsyncSaver>(dir, options);
  }
  absl::StatusOr<checkpoint::Loaded> LoadCheckpoint(
      const std::string& path,
      const checkpoint::LoadOptions& options) override {
    return checkpoint::Load(path, options);
  }
  std::unique_ptr<rendezvous::WorldLink> MakeLink(
      const rendezvous::WorldLink::Options& options,
      std::function<void(v1::WorkerMessage)> send,
      std::function<void(int64_t)> connected) override {
    return std::make_unique<rendezvous::WorldLink>(options, std::move(send),
                                                   std::move(connected));
  }
  std::unique_ptr<elastic::Watchdog> MakeWatchdog(
      absl::Duration limit, elastic::Watchdog::Report report) override {
    return std::make_unique<elastic::Watchdog>(limit, std::move(report));
  }
};

}  // namespace

Environment& Environment::Real() {
  static auto* const real = new RealEnvironment;
  return *real;
}

}  // namespace elasticdl::worker
