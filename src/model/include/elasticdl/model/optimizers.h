// Optimizers for model files. They run outside the model (in the worker or in
// parameter servers), so a model only describes one. Header-only counterparts
// of the functions in elasticdl/optim.h. No libtorch.
#pragma once

#include "elasticdl/optim.h"

namespace elasticdl {

using OptimizerSpec = optim::OptimizerSpec;

inline OptimizerSpec SGD(double lr, double momentum = 0.0,
                         bool nesterov = false, double weight_decay = 0.0) {
  return {"SGD",
          {{"lr", lr},
           {"momentum", momentum},
           {"nesterov", nesterov ? 1.0 : 0.0},
           {"weight_decay", weight_decay}}};
}
inline OptimizerSpec Adam(double lr = 0.001, double beta1 = 0.9,
                          double beta2 = 0.999, double epsilon = 1e-8,
                          bool amsgrad = false) {
  return {"Adam",
          {{"lr", lr},
           {"beta1", beta1},
           {"beta2", beta2},
           {"epsilon", epsilon},
           {"amsgrad", amsgrad ? 1.0 : 0.0}}};
}
inline OptimizerSpec AdamW(double lr = 0.001, double weight_decay = 0.01) {
  return {"AdamW", {{"lr", lr}, {"weight_decay", weight_decay}}};
}
inline OptimizerSpec Adagrad(double lr = 0.01, double epsilon = 1e-7) {
  return {"Adagrad", {{"lr", lr}, {"epsilon", epsilon}}};
}

}  // namespace elasticdl
