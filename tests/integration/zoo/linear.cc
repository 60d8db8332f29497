// A small regression that misbehaves as --model_params ask. Records are lines
// "id,x,y" or tf.Example messages with these features.
//
//   width=N, lr=R              hidden units, learning rate
//   throw_at=ID                feed throws on this record
//   crash_in_feed_at=ID        feed dies of SIGSEGV on this record
//   crash_at=ID                so does a training step
//   crash=1                    so does every training step
//   nan_at=ID                  the loss of this record is not a number
//   gate=DIR;gate_step=N       before step N or later, once: makes DIR/reached
//                              and waits
//                              until somebody writes to the FIFO DIR/gate
//   halve=N                    the learning rate is halved every N steps
//   patience=N                 the N-th evaluation after the first stops
//   await=DIR                  after an evaluation at step S, waits until
//                              DIR/version-S exists
//   pace=DIR                   a step takes 100 ms, 10 ms from when the file
//                              DIR/walk is there, and no longer than it must
//                              from when DIR/go is there
//   hang_at=ID;hang=FILE       once, a training step on this record makes FILE
//                              and never ends
//   batch_norm=1               with a BatchNorm layer
//   ballast=N                  N more parameters, which do nothing
//   peek=1                     custom_model reads one of them by a pointer
//   train_end=FILE             appends a line when the training is over
#include <elasticdl/model.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>

#include "pace.h"

namespace nn = torch::nn;

struct Net : nn::Module {
  explicit Net(const elasticdl::Params& params)
      : crash_at(params.Get("crash_at", -1)),
        nan_at(params.Get("nan_at", -1)),
        hang_at(params.Get("hang_at", -1)),
        hang(params.Get("hang", "")),
        hidden(
            register_module("hidden", nn::Linear(1, params.Get("width", 8)))),
        out(register_module("out", nn::Linear(params.Get("width", 8), 1))) {
    if (const int64_t n = params.Get("ballast", 0); n > 0) {
      ballast = register_module(
          "ballast", nn::Linear(nn::LinearOptions(n, 1).bias(false)));
      if (params.Has("peek")) seen = ballast->weight.data_ptr<float>()[n / 2];
    }
    if (params.Has("batch_norm")) {
      norm = register_module(
          "norm",
          nn::BatchNorm1d(static_cast<int64_t>(params.Get("width", 8))));
    }
  }

  torch::Tensor forward(const elasticdl::Features& features) {
    const torch::Tensor& ids = features["id"];
    if (crash_at >= 0 && ids.eq(crash_at).any().item<bool>()) raise(SIGSEGV);
    if (hang_at >= 0 && is_training() && ids.eq(hang_at).any().item<bool>()) {
      Hang();
    }
    torch::Tensor units = hidden(features["x"]);
    if (norm) units = norm(units);
    torch::Tensor y = out(torch::relu(units)).squeeze(1);
    if (ballast) y = y + ballast->weight.sum() * 0;
    if (nan_at >= 0) y = y.masked_fill(ids.eq(nan_at), std::nan(""));
    return y;
  }

  void Hang() const {
    const int fd = open(hang.c_str(), O_CREAT | O_EXCL, 0644);
    if (fd < 0) return;
    close(fd);
    while (true) pause();
  }

  const int64_t crash_at;
  const int64_t nan_at;
  const int64_t hang_at;
  const std::string hang;
  nn::Linear hidden;
  nn::Linear out;
  nn::BatchNorm1d norm{nullptr};
  nn::Linear ballast{nullptr};
  float seen = 0;
};

std::shared_ptr<Net> custom_model(const elasticdl::Params& params) {
  return std::make_shared<Net>(params);
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return torch::mse_loss(predictions, labels);
}

elasticdl::OptimizerSpec optimizer(const elasticdl::Params& params) {
  return elasticdl::SGD(params.Get("lr", 0.02), 0.9);
}

struct Row {
  int64_t id = 0;
  float x = 0;
  float y = 0;
};

Row ParseRow(absl::string_view record, const elasticdl::Metadata& metadata) {
  Row row;
  if (!metadata.column_names.empty()) {
    const auto fields =
        elasticdl::Value(elasticdl::data::ParseCsvRecord(record));
    row.id = std::stoll(fields.at(0));
    row.x = std::stof(fields.at(1));
    row.y = std::stof(fields.at(2));
  } else {
    const auto example =
        elasticdl::Value(elasticdl::data::ExampleView::Parse(record));
    row.id = elasticdl::Value(example.Int64("id"));
    row.x = elasticdl::Value(example.Float("x"));
    row.y = elasticdl::Value(example.Float("y"));
  }
  return row;
}

elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata,
                      const elasticdl::Params& params) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor ids = torch::empty({n}, torch::kLong);
  torch::Tensor x = torch::empty({n, 1});
  torch::Tensor y = torch::empty({n});
  for (int64_t i = 0; i < n; ++i) {
    const Row row = ParseRow(records[static_cast<size_t>(i)], metadata);
    if (row.id == params.Get("throw_at", -1)) {
      throw std::runtime_error("this record is poison");
    }
    if (row.id == params.Get("crash_in_feed_at", -1)) raise(SIGSEGV);
    ids.data_ptr<int64_t>()[i] = row.id;
    x.data_ptr<float>()[i] = row.x;
    y.data_ptr<float>()[i] = row.y;
  }
  elasticdl::Batch batch{elasticdl::Features{{"x", x}, {"id", ids}}, {}};
  if (mode != elasticdl::Mode::kPrediction) batch.labels = y;
  return batch;
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"mse", elasticdl::MeanSquaredError()},
          {"mae", elasticdl::MeanAbsoluteError()}};
}

struct Crash : elasticdl::Callback {
  void on_train_batch_begin(int64_t) override { raise(SIGSEGV); }
};

struct Gate : elasticdl::Callback {
  Gate(std::string dir, int64_t step) : dir(std::move(dir)), step(step) {}
  void on_train_batch_begin(int64_t now) override {
    // With servers, a worker may see step N + 1 first: its last push and the
    // next pull overlap.
    if (now < step) return;
    const int fd = open((dir + "/reached").c_str(), O_CREAT | O_EXCL, 0644);
    if (fd < 0) return;
    close(fd);
    const int gate = open((dir + "/gate").c_str(), O_RDONLY);
    char byte;
    if (read(gate, &byte, 1) < 0) throw std::runtime_error("gate");
    close(gate);
  }
  const std::string dir;
  const int64_t step;
};

struct Await : elasticdl::Callback {
  explicit Await(std::string dir) : dir(std::move(dir)) {}
  void on_evaluation_end(int64_t step,
                         const std::map<std::string, double>&) override {
    // The saver may not have made it yet, and what is not there cannot be
    // watched.
    mkdir(dir.c_str(), 0755);
    const int fd = inotify_init();
    inotify_add_watch(fd, dir.c_str(), IN_CREATE | IN_MOVED_TO);
    const std::string version = dir + "/version-" + std::to_string(step);
    while (access(version.c_str(), F_OK) != 0) {
      char events[4096];
      if (read(fd, events, sizeof(events)) < 0) break;
    }
    close(fd);
  }
  const std::string dir;
};

struct TrainEnd : elasticdl::Callback {
  explicit TrainEnd(std::string path) : path(std::move(path)) {}
  void on_train_end() override {
    std::ofstream(path, std::ios::app) << "train end\n";
  }
  const std::string path;
};

elasticdl::Callbacks callbacks(const elasticdl::Params& params) {
  elasticdl::Callbacks list;
  if (params.Has("crash")) list.push_back(std::make_shared<Crash>());
  if (params.Has("gate")) {
    list.push_back(std::make_shared<Gate>(params.Get("gate", ""),
                                          params.Get("gate_step", 1)));
  }
  if (const int halve = params.Get("halve", 0); halve > 0) {
    const double lr = params.Get("lr", 0.02);
    list.push_back(
        std::make_shared<elasticdl::LearningRateScheduler>([=](int64_t step) {
          return lr / static_cast<double>(1 << ((step - 1) / halve));
        }));
  }
  if (params.Has("patience")) {
    elasticdl::EarlyStopping::Options options;
    options.metric = "mse";
    options.larger_is_better = false;
    options.patience = params.Get("patience", 1);
    options.min_delta = 1e9;  // nothing is good enough
    list.push_back(std::make_shared<elasticdl::EarlyStopping>(options));
  }
  if (params.Has("await")) {
    list.push_back(std::make_shared<Await>(params.Get("await", "")));
  }
  if (params.Has("pace")) {
    list.push_back(std::make_shared<Pace>(params.Get("pace", "")));
  }
  if (params.Has("train_end")) {
    list.push_back(std::make_shared<TrainEnd>(params.Get("train_end", "")));
  }
  return list;
}
