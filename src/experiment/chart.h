// Charts as SVG, written without any library: they look the same in a report
// and as files, follow the reader's light or dark theme, and need no script.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elasticdl/experiment/measure.h"

namespace elasticdl::experiment {

struct Point {
  double x = 0;
  double y = 0;
  // A confidence interval; low > high: none.
  double low = 1;
  double high = 0;
};

struct Series {
  std::string name;
  std::vector<Point> points;
  // A model rather than a measurement: a dashed line without marks.
  bool model = false;
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  // Marks at these places of the x axis only.
  std::vector<double> x_ticks;
  // y is a share and shown in percent.
  bool percent = false;
  // Points are joined by steps, without marks: a distribution.
  bool steps = false;
  std::vector<Series> series;
};
std::string Draw(const LineChart& chart);

struct Bar {
  std::string label;
  double value = 0;
  double low = 1;
  double high = 0;
  // Which colour, as of the series of a LineChart.
  int color = 0;
};
// Horizontal bars, so that long labels fit.
struct BarChart {
  std::string title;
  std::string unit;
  bool percent = false;
  std::vector<Bar> bars;
};
std::string Draw(const BarChart& chart);

// Slots over time, the jobs' on top of each other.
struct SlotChart {
  std::string title;
  int64_t slots = 1;
  // The end of the time axis: charts that are compared have the same.
  double seconds = 1;
  // From the bottom to the top; colours in this order.
  std::vector<std::string> jobs;
  std::vector<TimelinePoint> timeline;
};
std::string Draw(const SlotChart& chart);

// The style of the charts, for a page or for a file of its own.
std::string ChartStyle();
// A chart as a file: with its style and a ground.
std::string SvgFile(const std::string& chart);

// Text in HTML or SVG.
std::string Escaped(const std::string& text);
// "1,234", "12.3", "0.0123"; short for people.
std::string Short(double value);

}  // namespace elasticdl::experiment
