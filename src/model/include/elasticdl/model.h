// The header for model files, and the only public header with libtorch. A model
// file is plain C++ with functions at global scope:
//
//   #include <elasticdl/model.h>
//   struct Net : torch::nn::Module { torch::Tensor forward(torch::Tensor x); };
//   std::shared_ptr<Net> custom_model(const elasticdl::Params& params);
//   torch::Tensor loss(const torch::Tensor& labels,
//                      const torch::Tensor& predictions);
//   elasticdl::OptimizerSpec optimizer();
//   elasticdl::Batch feed(const elasticdl::Records& records,
//                         elasticdl::Mode mode,
//                         const elasticdl::Metadata& metadata);
//   elasticdl::Metrics eval_metrics_fn();
// and optionally:
//   elasticdl::Callbacks callbacks();
//   std::unique_ptr<elasticdl::data::DataReader> custom_data_reader(
//       const std::string& origin, const elasticdl::Params& params);
//   struct PredictionOutputsProcessor {
//     explicit PredictionOutputsProcessor(const std::string& output_dir);
//     void process(const elasticdl::Outputs& predictions, int64_t worker_id);
//   };
//
// Each function, and the constructor of a PredictionOutputsProcessor, may take
// a trailing `const elasticdl::Params&` (--model_params) and may omit trailing
// arguments. Functions report errors by throwing; the job's message then names
// the function and, for `feed`, the record. examples/ has complete files.
#pragma once

#include <torch/torch.h>

#include "elasticdl/data/csv.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/metric.h"
#include "elasticdl/model/callbacks.h"
#include "elasticdl/model/embedding.h"
#include "elasticdl/model/feed.h"
#include "elasticdl/model/metrics.h"
#include "elasticdl/model/optimizers.h"
#include "elasticdl/model/params.h"
#include "elasticdl/model/preprocessing.h"
#include "elasticdl/model/types.h"
