// The worker's training step in a world that never changes: same model, data
// pipeline, gradient buckets and optimizer as elasticdl-worker, but no master,
// no ledger, no control word. The difference is the cost of elasticity
// (elasticity.py).
//   fixed_world ZOO MODEL_DEF DATA STEPS [RANKS=2 [BACKEND=gloo]]
// Prints the records per second of all ranks together.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "batch_pipeline.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/worker.h"
#include "gradient_reducer.h"
#include "local_ranks.h"
#include "replica.h"

namespace elasticdl::benchmarks {
namespace {

using collective::Communicator;
using worker::BatchPipeline;
using worker::Minibatch;

constexpr int64_t kMinibatch = 64;
// The default of --num_minibatches_per_task.
constexpr int64_t kTask = 8 * kMinibatch;
// Warm-up steps, not measured.
constexpr int kFirstSteps = 20;

struct Setting {
  model::LoadOptions model;
  std::string data;
  int steps = 0;
};

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// The tasks of one rank for `steps` steps: every size-th task of each epoch.
std::vector<v1::Task> TasksOf(const std::vector<data::Shard>& shards, int rank,
                              int size, int64_t steps) {
  std::vector<v1::Task> tasks;
  int64_t next = 0;
  for (uint64_t epoch = 1;; ++epoch) {
    for (const data::Shard& shard : shards) {
      // Whole tasks only, so that all ranks do the same number of steps.
      for (int64_t begin = shard.begin; begin + kTask <= shard.end;
           begin += kTask, ++next) {
        if (next % size != rank) continue;
        if (steps <= 0) return tasks;
        v1::Task task;
        task.set_type(v1::TRAINING);
        v1::LedgerRange& range = *task.mutable_range();
        range.set_shard(shard.name);
        range.set_block_begin(begin);
        range.set_block_end(begin + kTask);
        range.set_begin(begin);
        range.set_end(begin + kTask);
        task.set_shuffle_seed(epoch);
        tasks.push_back(std::move(task));
        steps -= kTask / kMinibatch;
      }
    }
    if (next == 0) Die("the data is smaller than one task");
  }
}

void Train(const Setting& setting, std::shared_ptr<Communicator> world) {
  worker::KeepFreedMemory();
  torch::set_num_threads(1);
  const auto model = OrDie(model::Load(setting.model));
  const auto replica = OrDie(worker::Replica::Create(*model, {1}, true));
  const auto reader = OrDie(data::OpenDataReader(setting.data, {}));
  Queue<std::shared_ptr<Minibatch>> minibatches(
      static_cast<size_t>(worker::PipelineOptions().depth));
  worker::PipelineOptions options;
  options.minibatch_size = kMinibatch;
  BatchPipeline pipeline(options, *model, *reader,
                         [&](std::shared_ptr<Minibatch> minibatch) {
                           minibatches.Push(std::move(minibatch));
                         });
  const int last = kFirstSteps + setting.steps;
  for (v1::Task& task : TasksOf(OrDie(reader->CreateShards()), world->rank(),
                                world->size(), last)) {
    pipeline.Add(std::move(task));
  }
  worker::GradientReducer reducer(replica->parameters(),
                                  worker::GradientCompression::kNone);
  const double scale = 1.0 / world->size();
  std::chrono::steady_clock::time_point start;
  for (int step = 0; step < last; ++step) {
    if (step == kFirstSteps) start = std::chrono::steady_clock::now();
    const Batch batch = OrDie((*minibatches.Pop())->Take());
    replica->parameters().ZeroGradients();
    reducer.BeginOverlap(world);
    Check(replica->AddGradients(batch, scale).status());
    Check(reducer.Finish(world, 0));
    replica->ApplyGradients(replica->learning_rate());
    pipeline.Release();
  }
  const std::chrono::duration<double> spent =
      std::chrono::steady_clock::now() - start;
  if (world->rank() == 0) {
    std::printf("%.1f\n", static_cast<double>(world->size() * setting.steps *
                                              kMinibatch) /
                              spent.count());
  }
  pipeline.Stop();
  minibatches.Close();
}

int Main(int argc, char** argv) {
  if (argc < 5 || argc > 7) {
    Die("usage: fixed_world ZOO MODEL_DEF DATA STEPS [RANKS=2 "
        "[BACKEND=gloo]]");
  }
  Setting setting;
  setting.model.model_zoo = argv[1];
  setting.model.model_def = argv[2];
  setting.model.toolchain = OrDie(model::FindToolchain(
      std::filesystem::read_symlink("/proc/self/exe").string()));
  const char* const home = std::getenv("HOME");
  setting.model.cache_dir =
      absl::StrCat(home == nullptr ? "/tmp" : home, "/.cache/elasticdl/models");
  setting.data = argv[3];
  setting.steps = std::atoi(argv[4]);
  const int ranks = argc > 5 ? std::atoi(argv[5]) : 2;
  FILE* const output = RunRanks(argc > 6 ? argv[6] : "gloo", ranks,
                                [&](std::unique_ptr<Communicator> world) {
                                  Train(setting, std::move(world));
                                });
  double rate = 0;
  if (std::fscanf(output, "%lf", &rate) != 1) Die("rank 0 printed nothing");
  FinishRanks(output);
  std::printf("%.1f\n", rate);
  return 0;
}

}  // namespace
}  // namespace elasticdl::benchmarks

int main(int argc, char** argv) {
  return elasticdl::benchmarks::Main(argc, argv);
}
