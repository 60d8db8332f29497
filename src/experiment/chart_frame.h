// What the charts share: scales, axes, legend.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::experiment {

inline constexpr double kWidth = 640;
inline constexpr double kHeight = 360;

// From values to places. Thread-compatible.
class Scale {
 public:
  Scale(double from, double to, double begin, double end, bool log);
  double At(double value) const;
  // Round values within the range.
  std::vector<double> Ticks(int about) const;

 private:
  const double from_;
  const double to_;
  const double begin_;
  const double end_;
  const bool log_;
};

// An element that starts a chart; the caller ends it with "</svg>".
std::string Begin(const std::string& title, double height = kHeight);
std::string TextAt(double x, double y, const std::string& style,
                   const std::string& text);
std::string LineFrom(double x1, double y1, double x2, double y2,
                     const std::string& style);

// Names with their colours below the title; returns how many lines it took.
int Legend(const std::vector<std::string>& names,
           const std::vector<bool>& dashed, std::string* out);

// A number of an axis.
std::string Tick(double value, bool percent);

}  // namespace elasticdl::experiment
