// Small data sets for the models of examples/, in which there is something to
// learn.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/common/check.h"
#include "elasticdl/data/convert.h"
#include "elasticdl/data/example.h"

namespace elasticdl::test {

using MakeRecord = void (*)(std::mt19937& random, data::ExampleBuilder& record);

inline void WriteExamples(const std::string& directory, int64_t records,
                          MakeRecord make, uint32_t seed = 5) {
  data::OutputOptions output;
  output.directory = directory;
  output.records_per_file = 200;
  auto writer = data::DatasetWriter::Create(output);
  ELASTICDL_CHECK(writer.ok());
  std::mt19937 random(seed);
  for (int64_t i = 0; i < records; ++i) {
    data::ExampleBuilder builder;
    make(random, builder);
    ELASTICDL_CHECK((*writer)->Write(builder.Serialize()).ok());
  }
  ELASTICDL_CHECK((*writer)->Close().ok());
}

// An image of kSize x kSize pixels that is brighter in two rows: the label.
template <int64_t kSize, int64_t kChannels>
void MakeImage(std::mt19937& random, data::ExampleBuilder& record) {
  const auto label = static_cast<int64_t>(random() % 10);
  std::vector<float> image(kSize * kSize * kChannels);
  for (size_t i = 0; i < image.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / (kSize * kChannels);
    image[i] =
        static_cast<float>(random() % 50) + (row / 2 == label ? 200.0F : 0.0F);
  }
  record.SetFloats("image", image);
  record.SetInt64("label", label);
}

// Ten ids; the label is in the first of them.
inline void MakeIds(std::mt19937& random, data::ExampleBuilder& record) {
  std::vector<int64_t> ids(10);
  for (int64_t& id : ids) id = 1 + static_cast<int64_t>(random() % 300);
  record.SetInt64s("feature", ids);
  record.SetInt64("label", ids[0] > 150 ? 1 : 0);
}

}  // namespace elasticdl::test
