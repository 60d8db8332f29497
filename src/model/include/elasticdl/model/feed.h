// Helpers for feed functions: they report errors as exceptions and decode
// tf.Example records directly into a batch's tensor.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "elasticdl/data/example.h"
#include "elasticdl/model/types.h"

namespace elasticdl {

// Throws std::runtime_error with the message of a status that is not OK.
inline void Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}
// Returns the value, or throws like Check.
template <typename T>
T Value(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Input and output of ImageBatch.
struct ImageOptions {
  // Shape of one image, e.g. {1, 28, 28}; {} = flat, with as many values as the
  // first record has.
  std::vector<int64_t> shape;
  std::string image_feature = "image";
  std::string label_feature = "label";
  // Records are height x width x channels (shape is still channels first).
  bool channels_last = false;
  // output = (pixel * scale - mean) / std
  double scale = 1.0 / 255;
  double mean = 0.0;
  double std = 1.0;
};

// Decodes images and labels from tf.Example records. The image is a list of
// floats or one bytes value. Labels are int64; there are none in prediction.
Batch ImageBatch(const Records& records, Mode mode,
                 const ImageOptions& options);

// Feature `name` of every record, `width` floats each, as (B, width).
torch::Tensor FloatFeature(const std::vector<data::ExampleView>& examples,
                           absl::string_view name, int64_t width);
// The same for integers.
torch::Tensor Int64Feature(const std::vector<data::ExampleView>& examples,
                           absl::string_view name, int64_t width);
std::vector<data::ExampleView> ParseExamples(const Records& records);

}  // namespace elasticdl

#include "elasticdl/model/internal/feed_inl.h"
