// Callbacks for model files: learning-rate schedules, early stopping, user
// code. No libtorch.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace elasticdl {

// The hooks have the names of the Python ElasticDL. Runs on the training
// thread; a hook may throw, which fails the job.
class Callback {
 public:
  virtual ~Callback() = default;

  // Called before step `step` (steps count from 1).
  virtual void on_train_batch_begin(int64_t step) {}
  // Called after an evaluation of the model at `step`; metrics by name.
  virtual void on_evaluation_end(int64_t step,
                                 const std::map<std::string, double>& metrics) {
  }
  // Called once per job, after the last step, on one worker.
  virtual void on_train_end() {}

  // What the hooks have requested; read by the trainer after each hook.
  const std::optional<double>& learning_rate() const { return learning_rate_; }
  bool stop_requested() const { return stop_requested_; }
  const std::string& stop_reason() const { return stop_reason_; }

 protected:
  // Takes effect with the next update.
  void SetLearningRate(double lr) { learning_rate_ = lr; }
  // Ends the training after the current step, as if the data had ended.
  void StopTraining(std::string reason) {
    stop_requested_ = true;
    stop_reason_ = std::move(reason);
  }

 private:
  std::optional<double> learning_rate_;
  bool stop_requested_ = false;
  std::string stop_reason_;
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;

// Learning rate as a function of the step.
class LearningRateScheduler : public Callback {
 public:
  explicit LearningRateScheduler(std::function<double(int64_t step)> schedule)
      : schedule_(std::move(schedule)) {}
  void on_train_batch_begin(int64_t step) override {
    SetLearningRate(schedule_(step));
  }

 private:
  std::function<double(int64_t)> schedule_;
};

// Stops when `metric` has not improved by more than `min_delta` in `patience`
// evaluations in a row. Evaluations in which the metric is missing or NaN do
// not count.
class EarlyStopping : public Callback {
 public:
  struct Options {
    std::string metric;
    int patience = 1;
    double min_delta = 0.0;
    // True for accuracy and AUC, false for losses and errors.
    bool larger_is_better = true;
  };

  explicit EarlyStopping(Options options) : options_(std::move(options)) {}
  void on_evaluation_end(
      int64_t step, const std::map<std::string, double>& metrics) override {
    const auto it = metrics.find(options_.metric);
    if (it == metrics.end() || std::isnan(it->second)) return;
    const double value = options_.larger_is_better ? it->second : -it->second;
    if (!best_ || value > *best_ + options_.min_delta) {
      best_ = value;
      evaluations_without_gain_ = 0;
      return;
    }
    if (++evaluations_without_gain_ < options_.patience) return;
    StopTraining("no better " + options_.metric + " in " +
                 std::to_string(evaluations_without_gain_) +
                 " evaluations, at step " + std::to_string(step));
  }

 private:
  const Options options_;
  std::optional<double> best_;
  int evaluations_without_gain_ = 0;
};

// Ends the training after `max_steps` steps.
class MaxStepsStopping : public Callback {
 public:
  explicit MaxStepsStopping(int64_t max_steps) : max_steps_(max_steps) {}
  void on_train_batch_begin(int64_t step) override {
    if (step < max_steps_) return;
    StopTraining("reached " + std::to_string(max_steps_) + " steps");
  }

 private:
  const int64_t max_steps_;
};

}  // namespace elasticdl
