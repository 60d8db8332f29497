// A tf.Example: where our parser in place and Protocol Buffers both take it,
// they agree on what it says.
#include <cstring>

#include "elasticdl/data/example.h"
#include "elasticdl/v1/example.pb.h"
#include "fuzz.h"

namespace elasticdl::data {
namespace {

// Bit by bit, so that NaN equals itself.
bool SameFloats(const std::vector<float>& a, const v1::FloatList& b) {
  return a.size() == static_cast<size_t>(b.value_size()) &&
         (a.empty() || std::memcmp(a.data(), b.value().data(),
                                   a.size() * sizeof(float)) == 0);
}

void Compare(const FeatureView& view, const v1::Feature& feature) {
  switch (feature.kind_case()) {
    case v1::Feature::kFloatList: {
      const auto floats = view.Floats();
      ELASTICDL_CHECK(floats.ok() && SameFloats(*floats, feature.float_list()));
      return;
    }
    case v1::Feature::kInt64List: {
      const auto numbers = view.Int64s();
      ELASTICDL_CHECK(numbers.ok());
      const auto& expected = feature.int64_list().value();
      ELASTICDL_CHECK(std::vector<int64_t>(expected.begin(), expected.end()) ==
                      *numbers);
      return;
    }
    case v1::Feature::kBytesList: {
      const auto bytes = view.Bytes();
      ELASTICDL_CHECK(bytes.ok());
      const auto& expected = feature.bytes_list().value();
      ELASTICDL_CHECK(bytes->size() == static_cast<size_t>(expected.size()));
      for (int i = 0; i < expected.size(); ++i) {
        ELASTICDL_CHECK((*bytes)[static_cast<size_t>(i)] == expected[i]);
      }
      return;
    }
    case v1::Feature::KIND_NOT_SET:
      ELASTICDL_CHECK(view.kind() == FeatureKind::kNone);
      return;
  }
}

void Run(absl::string_view bytes) {
  const auto view = ExampleView::Parse(bytes);
  if (view.ok()) {
    static_cast<void>(view->DebugString());
    for (const FeatureView& feature : view->features()) {
      static_cast<void>(feature.size().ok());
      static_cast<void>(feature.Floats().ok());
      static_cast<void>(feature.Int64s().ok());
      static_cast<void>(feature.Bytes().ok());
    }
  }
  v1::Example example;
  if (!example.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  // Ours is stricter about groups, which no tf.Example has.
  if (!view.ok()) return;
  for (const auto& [name, feature] : example.features().feature()) {
    const FeatureView* found = view->Find(name);
    ELASTICDL_CHECK(found != nullptr);
    Compare(*found, feature);
  }
}

}  // namespace
}  // namespace elasticdl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::data::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
