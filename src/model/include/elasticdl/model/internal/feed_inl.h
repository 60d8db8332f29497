// Inline parts of elasticdl/model/feed.h.
#pragma once

#include "elasticdl/model/feed.h"

namespace elasticdl {
namespace internal {

// Copies the values of one image to out.
inline void CopyImage(const data::FeatureView& image, absl::Span<float> out) {
  if (image.kind() != data::FeatureKind::kBytes) {
    Check(image.CopyFloats(out));
    return;
  }
  const absl::string_view bytes = Value(image.BytesValue());
  if (bytes.size() != out.size()) {
    throw std::runtime_error("image has " + std::to_string(bytes.size()) +
                             " bytes, not " + std::to_string(out.size()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(static_cast<unsigned char>(bytes[i]));
  }
}

// Shape of the batch's tensor in the layout of the records.
inline std::vector<int64_t> ImageBatchShape(const Records& records,
                                            const ImageOptions& options) {
  std::vector<int64_t> shape = options.shape;
  if (shape.empty()) {
    const data::ExampleView first = Value(data::ExampleView::Parse(records[0]));
    const data::FeatureView image = Value(first.Get(options.image_feature));
    shape = {static_cast<int64_t>(image.kind() == data::FeatureKind::kBytes
                                      ? Value(image.BytesValue()).size()
                                      : Value(image.size()))};
  } else if (options.channels_last && shape.size() == 3) {
    shape = {shape[1], shape[2], shape[0]};
  }
  shape.insert(shape.begin(), static_cast<int64_t>(records.size()));
  return shape;
}

}  // namespace internal

inline Batch ImageBatch(const Records& records, Mode mode,
                        const ImageOptions& options) {
  if (records.empty()) throw std::invalid_argument("no records");
  Batch batch;
  torch::Tensor images =
      torch::empty(internal::ImageBatchShape(records, options));
  const size_t size = static_cast<size_t>(images.numel()) / records.size();
  float* out = images.data_ptr<float>();
  int64_t* labels = nullptr;
  if (mode != Mode::kPrediction) {
    batch.labels =
        torch::empty({static_cast<int64_t>(records.size())}, torch::kLong);
    labels = batch.labels.data_ptr<int64_t>();
  }
  const auto scale = static_cast<float>(options.scale / options.std);
  const auto shift = static_cast<float>(-options.mean / options.std);
  for (size_t i = 0; i < records.size(); ++i, out += size) {
    const data::ExampleView example =
        Value(data::ExampleView::Parse(records[i]));
    internal::CopyImage(Value(example.Get(options.image_feature)),
                        absl::MakeSpan(out, size));
    // Scale now, while the image is in the CPU's cache.
    for (size_t j = 0; j < size; ++j) out[j] = out[j] * scale + shift;
    if (labels != nullptr) {
      labels[i] = Value(example.Int64(options.label_feature));
    }
  }
  if (options.channels_last && images.dim() == 4) {
    images = images.permute({0, 3, 1, 2}).contiguous();
  }
  batch.features = std::move(images);
  return batch;
}

inline std::vector<data::ExampleView> ParseExamples(const Records& records) {
  std::vector<data::ExampleView> examples;
  examples.reserve(records.size());
  for (const absl::string_view record : records) {
    examples.push_back(Value(data::ExampleView::Parse(record)));
  }
  return examples;
}

inline torch::Tensor FloatFeature(
    const std::vector<data::ExampleView>& examples, absl::string_view name,
    int64_t width) {
  torch::Tensor out =
      torch::empty({static_cast<int64_t>(examples.size()), width});
  float* row = out.data_ptr<float>();
  const auto size = static_cast<size_t>(width);
  for (const data::ExampleView& example : examples) {
    Check(example.CopyFloats(name, absl::MakeSpan(row, size)));
    row += size;
  }
  return out;
}

inline torch::Tensor Int64Feature(
    const std::vector<data::ExampleView>& examples, absl::string_view name,
    int64_t width) {
  torch::Tensor out = torch::empty(
      {static_cast<int64_t>(examples.size()), width}, torch::kLong);
  int64_t* row = out.data_ptr<int64_t>();
  const auto size = static_cast<size_t>(width);
  for (const data::ExampleView& example : examples) {
    Check(example.CopyInt64s(name, absl::MakeSpan(row, size)));
    row += size;
  }
  return out;
}

}  // namespace elasticdl
