// The data sets of a job and their readers.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/v1/job.pb.h"
#include "elasticdl/v1/master.pb.h"
#include "environment.h"
#include "event.h"

namespace elasticdl::worker {

// Runs on the training thread.
class DataSources {
 public:
  // What is given must outlive this.
  DataSources(const v1::JobSpec& job, model::Model& model,
              Environment& environment, EventQueue& events,
              c10::Device device = c10::Device(c10::kCPU))
      : job_(job),
        model_(model),
        environment_(environment),
        events_(events),
        device_(device) {}

  // Minibatches of the tasks of `origin` arrive as events of this kind.
  absl::StatusOr<std::unique_ptr<MinibatchSource>> MakePipeline(
      const std::string& origin, Mode mode, Event::Kind kind);
  // One minibatch of training data, at once.
  absl::StatusOr<Batch> ReadOne(const v1::Task& task);
  // For a timeline; before MakePipeline. Must outlive the pipelines.
  void SetRecorder(trace::Recorder* recorder) { recorder_ = recorder; }
  // Tells the master the shards, if only the model's own reader knows them.
  absl::Status AddShards(v1::Ready& ready);

 private:
  absl::StatusOr<data::DataReader*> OpenReader(const std::string& origin);

  const v1::JobSpec& job_;
  model::Model& model_;
  Environment& environment_;
  EventQueue& events_;
  // Where minibatches go.
  const c10::Device device_;
  std::map<std::string, std::unique_ptr<data::DataReader>> readers_;
  bool has_own_reader_ = false;
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace elasticdl::worker
