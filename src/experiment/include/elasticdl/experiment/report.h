// The report of an experiment: charts and tables as one HTML file. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "elasticdl/experiment/plan.h"
#include "elasticdl/experiment/results.h"

namespace elasticdl::experiment {

struct NamedChart {
  // Of a file: "throughput-workers".
  std::string name;
  // What it shows, for readers of the report.
  std::string note;
  std::string svg;
};

// The charts for which there are results.
std::vector<NamedChart> Charts(const Plan& plan, const Summary& summary);

// The page. It needs no other file and no script.
std::string ReportHtml(const Plan& plan, const Summary& summary,
                       const std::map<std::string, RunResult>& results);

// The chart as a file that any browser shows.
std::string ChartFile(const NamedChart& chart);

}  // namespace elasticdl::experiment
