// Runs prediction tasks: outputs go to the model's own processor or to a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "elasticdl/elastic/watchdog.h"
#include "elasticdl/model/loader.h"
#include "minibatch.h"
#include "prediction_writer.h"
#include "replica.h"
#include "task_reports.h"

namespace elasticdl::worker {

// Where predictions go: one of the two is set.
struct PredictionOutput {
  std::unique_ptr<model::PredictionProcessor> processor;
  std::optional<PredictionWriter> writer;
};

// Runs on the training thread, except AddTask.
class Predictor {
 public:
  struct Deps {
    int64_t worker_id = 0;
    Replica& replica;
    TaskReports& reports;
    // If any.
    elastic::Watchdog* watchdog = nullptr;
  };
  // What `deps` refers to must outlive the predictor.
  Predictor(const Deps& deps, PredictionOutput output,
            std::unique_ptr<MinibatchSource> source);

  // Any thread.
  void AddTask(v1::Task task) { source_->Add(std::move(task)); }
  // The next minibatch of its tasks. An error fails the job.
  absl::Status Predict(Minibatch& minibatch);
  // The model has a processor of its own that takes no folder.
  bool ignores_output_dir() const {
    return output_.processor != nullptr &&
           !output_.processor->uses_output_dir();
  }
  void Stop() { source_->Stop(); }

 private:
  const Deps deps_;
  PredictionOutput output_;
  const std::unique_ptr<MinibatchSource> source_;
};

}  // namespace elasticdl::worker
