// Shared by the model files of this folder.
#pragma once

#include <elasticdl/model.h>

#include <cstdio>

inline elasticdl::Batch ParseNumbers(const elasticdl::Records& records,
                                     elasticdl::Mode mode) {
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor x = torch::empty({n, 2});
  torch::Tensor labels = torch::empty({n}, torch::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const std::string text(records[static_cast<size_t>(i)]);
    float a = 0;
    float b = 0;
    long label = 0;
    if (std::sscanf(text.c_str(), "%f %f %ld", &a, &b, &label) != 3) {
      throw std::runtime_error("cannot read '" + text + "'");
    }
    x[i][0] = a;
    x[i][1] = b;
    labels[i] = static_cast<int64_t>(label);
  }
  if (mode == elasticdl::Mode::kPrediction) return {x, {}};
  return {x, labels};
}
