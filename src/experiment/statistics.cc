#include "elasticdl/experiment/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace elasticdl::experiment {
namespace {

// The 97.5 % quantile of Student's t for 1, 2, … degrees of freedom.
double StudentT(size_t degrees) {
  static constexpr double kTable[] = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees == 0) return 0;
  return degrees <= std::size(kTable) ? kTable[degrees - 1] : 1.96;
}

}  // namespace

Estimate EstimateMean(const std::vector<double>& values) {
  Estimate result;
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  result.count = static_cast<int>(values.size());
  result.mean = sum / count;
  double squares = 0;
  for (const double value : values) {
    squares += (value - result.mean) * (value - result.mean);
  }
  const double error =
      values.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count);
  const double half = StudentT(values.size() - 1) * error;
  result.low = result.mean - half;
  result.high = result.mean + half;
  return result;
}

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at =
      std::clamp(p, 0.0, 100.0) / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double part = at - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

double YoungInterval(const CheckpointRestart& cost, double mtbf) {
  return std::sqrt(2 * cost.save * mtbf);
}

double DalyInterval(const CheckpointRestart& cost, double mtbf) {
  // The series below is Daly's (2006) for shorter saves, this his limit.
  if (cost.save >= 2 * mtbf) return mtbf;
  const double ratio = cost.save / (2 * mtbf);
  return std::sqrt(2 * cost.save * mtbf) *
             (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         cost.save;
}

double CheckpointGoodput(const CheckpointRestart& cost, double mtbf,
                         double interval) {
  if (mtbf <= 0) return 0;
  if (interval <= 0) return 1;
  // The mean time that an interval of work takes (Daly): its save and the
  // restarts may be hit, too.
  const double expected = mtbf * std::exp(cost.restart / mtbf) *
                          std::expm1((interval + cost.save) / mtbf);
  return interval / expected;
}

double BestCheckpointGoodput(const CheckpointRestart& cost, double mtbf) {
  // A save that costs nothing is made after every moment of work.
  if (cost.save <= 0) return std::exp(-cost.restart / mtbf);
  return CheckpointGoodput(cost, mtbf, DalyInterval(cost, mtbf));
}

}  // namespace elasticdl::experiment
