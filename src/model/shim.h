// The generated source around a model file: includes it, and exports the table
// of elasticdl/model/plugin.h.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::model {

// The names of the user's functions, as returned by ResolveFunction.
struct ShimNames {
  std::string model;
  bool model_is_class = false;
  std::string feed;
  std::string loss;
  std::string optimizer;
  std::string eval_metrics_fn;
  std::string callbacks;
  std::string custom_data_reader;
  // "" if the file defines no such class.
  std::string processor;
};

// `files`: absolute paths of the user's sources, each included once.
std::string ShimSource(const ShimNames& names,
                       const std::vector<std::string>& files,
                       const std::string& elasticdl_version);

}  // namespace elasticdl::model
