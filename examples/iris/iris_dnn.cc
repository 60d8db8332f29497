// Iris: species of flowers from four measurements, in a CSV file with a header.
#include <elasticdl/model.h>

#include <array>
#include <string>

namespace nn = torch::nn;

nn::Sequential custom_model() {
  return nn::Sequential(nn::Linear(4, 16), nn::ReLU(), nn::Linear(16, 16),
                        nn::ReLU(), nn::Linear(16, 3));
}

torch::Tensor loss(const torch::Tensor& labels,
                   const torch::Tensor& predictions) {
  return nn::functional::cross_entropy(predictions, labels);
}

elasticdl::OptimizerSpec optimizer() { return elasticdl::Adam(0.01); }

// Columns: four measurements in cm, then the species.
elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode,
                      const elasticdl::Metadata& metadata) {
  static const auto& species = *new elasticdl::IndexLookup(
      {"setosa", "versicolor", "virginica"}, /*num_oov_tokens=*/1);
  static constexpr std::array<float, 4> kMean = {5.84f, 3.06f, 3.76f, 1.20f};
  const auto n = static_cast<int64_t>(records.size());
  torch::Tensor x = torch::empty({n, 4});
  torch::Tensor labels = torch::zeros({n}, torch::kLong);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto fields =
        elasticdl::Value(elasticdl::data::ParseCsvRecord(records[i]));
    for (size_t j = 0; j < 4; ++j) {
      x.data_ptr<float>()[i * 4 + j] = std::stof(fields.at(j)) - kMean[j];
    }
    if (mode == elasticdl::Mode::kPrediction) continue;
    const int64_t label = species(fields.at(4));
    if (label > 2)
      throw std::invalid_argument("unknown species '" + fields[4] + "'");
    labels.data_ptr<int64_t>()[i] = label;
  }
  return {x, labels};
}

elasticdl::Metrics eval_metrics_fn() {
  return {{"accuracy", elasticdl::Accuracy()}};
}
