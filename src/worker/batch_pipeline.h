// Reads and decodes ahead of the training step: tasks in, minibatches out, in
// order. A reader thread cuts tasks into minibatches, feeder threads run the
// model's feed function on them, so the step finds its tensors ready.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/trace/recorder.h"
#include "elasticdl/v1/master.pb.h"
#include "minibatch.h"

namespace elasticdl::worker {

struct PipelineOptions {
  Mode mode = Mode::kTraining;
  int64_t minibatch_size = 64;
  // Minibatches read ahead; each holds one batch of tensors.
  int depth = 8;
  int num_feeders = 1;
  // For a timeline; null = none.
  trace::Recorder* recorder = nullptr;
  // Tensors are pinned for this device.
  c10::Device device = c10::Device(c10::kCPU);
  // Features of four dimensions have their channels last in memory.
  bool channels_last = false;
};

// Thread-safe. Stop() makes every thread end; the destructor joins them.
class BatchPipeline : public MinibatchSource {
 public:
  // `model` and `reader` must outlive the pipeline. `sink` is called on the
  // reader thread.
  BatchPipeline(PipelineOptions options, model::Model& model,
                data::DataReader& reader, Sink sink);
  ~BatchPipeline() override;

  void Add(v1::Task task) override;
  void Release() override;
  void Stop() override;

 private:
  // A minibatch and what its feeder needs.
  struct Raw {
    std::shared_ptr<Minibatch> minibatch;
    // Owns the memory of `records`; shared by the minibatches of a task.
    std::shared_ptr<const data::RecordBatch> block;
    std::vector<absl::string_view> records;
  };

  void ReadTasks();
  void ReadTask(const std::shared_ptr<const v1::Task>& task);
  void FeedMinibatches();
  bool WaitForRoom();

  const PipelineOptions options_;
  model::Model& model_;
  data::DataReader& reader_;
  const Sink sink_;
  Queue<std::shared_ptr<const v1::Task>> tasks_;
  Queue<Raw> to_feed_;

  Mutex mu_;
  CondVar room_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<Thread> threads_;
};

}  // namespace elasticdl::worker
