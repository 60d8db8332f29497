// Statistics of a few repeated measurements, and the analytic model of training
// with checkpoints and restarts. Pure.
#pragma once

#include <vector>

namespace elasticdl::experiment {

// Mean and its 95 % confidence interval (Student's t). With fewer than two
// values the interval is the value itself.
struct Estimate {
  double mean = 0;
  double low = 0;
  double high = 0;
  int count = 0;
};
Estimate EstimateMean(const std::vector<double>& values);

// By linear interpolation; `p` in percent. 0 without values.
double Percentile(std::vector<double> values, double p);

// Training that saves its state every so often and, after a failure, starts
// again from the newest save. All in seconds.
struct CheckpointRestart {
  double save = 0;
  double restart = 0;
};

// The interval between saves that loses the least time, with failures that come
// at random every `mtbf` seconds: Young's approximation (1974), and Daly's of
// higher order (2006), which is `mtbf` when a save takes longer than 2 mtbf.
double YoungInterval(const CheckpointRestart& cost, double mtbf);
double DalyInterval(const CheckpointRestart& cost, double mtbf);

// The share of time that goes into work that is kept (0 to 1), by Daly's model
// of the expected time, when saving every `interval` seconds of work.
double CheckpointGoodput(const CheckpointRestart& cost, double mtbf,
                         double interval);
// The best that any interval reaches: at DalyInterval.
double BestCheckpointGoodput(const CheckpointRestart& cost, double mtbf);

}  // namespace elasticdl::experiment
