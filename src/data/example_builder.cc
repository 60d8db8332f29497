// Serializes tf.Example records, and shows them to people.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/data/example.h"
#include "example_wire.h"

namespace elasticdl::data {
namespace {

using internal::AppendBytesHeader;
using internal::AppendVarint;
using internal::VarintBytes;

// Bytes of a field of type kBytes with a one-byte tag.
size_t FieldBytes(size_t length) { return 1 + VarintBytes(length) + length; }

// Field numbers of the lists in a Feature.
constexpr uint32_t kBytesList = 1;
constexpr uint32_t kFloatList = 2;
constexpr uint32_t kInt64List = 3;

template <typename Value, typename Format>
void AppendValues(const std::vector<Value>& values, size_t max_values,
                  Format format, std::string& out) {
  const size_t shown = std::min(values.size(), max_values);
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", format(values[i]));
  }
  if (shown < values.size()) {
    absl::StrAppend(&out, ", … ", values.size() - shown, " more");
  }
}

void AppendFeature(const FeatureView& feature, size_t max_values,
                   std::string& out) {
  const auto count = feature.size();
  if (!count.ok()) {
    absl::StrAppend(&out, feature.name(), ": <malformed>");
    return;
  }
  absl::StrAppend(&out, feature.name(), ": ", FeatureKindName(feature.kind()),
                  "[", *count, "] {");
  switch (feature.kind()) {
    case FeatureKind::kNone:
      break;
    case FeatureKind::kFloat:
      AppendValues(
          *feature.Floats(), max_values, [](float v) { return v; }, out);
      break;
    case FeatureKind::kInt64:
      AppendValues(
          *feature.Int64s(), max_values, [](int64_t v) { return v; }, out);
      break;
    case FeatureKind::kBytes:
      AppendValues(
          *feature.Bytes(), max_values,
          [](absl::string_view v) {
            const bool cut = v.size() > 40;
            return absl::StrCat("\"", absl::CHexEscape(v.substr(0, 40)), "\"",
                                cut ? "…" : "");
          },
          out);
      break;
  }
  out += "}";
}

}  // namespace

std::string ExampleView::DebugString(size_t max_values) const {
  std::string out;
  for (const FeatureView& feature : features_) {
    if (!out.empty()) out += "  ";
    AppendFeature(feature, max_values, out);
  }
  return out;
}

std::string& ExampleBuilder::Slot(absl::string_view name) {
  for (size_t i = 0; i < size_; ++i) {
    if (features_[i].first == name) {
      features_[i].second.clear();
      return features_[i].second;
    }
  }
  if (size_ == features_.size()) features_.emplace_back();
  auto& slot = features_[size_++];
  slot.first.assign(name.data(), name.size());
  slot.second.clear();
  return slot.second;
}

void ExampleBuilder::SetFloats(absl::string_view name,
                               absl::Span<const float> values) {
  std::string& out = Slot(name);
  const size_t bytes = values.size() * sizeof(float);
  AppendBytesHeader(kFloatList, values.empty() ? 0 : FieldBytes(bytes), out);
  if (values.empty()) return;
  AppendBytesHeader(1, bytes, out);
  out.append(reinterpret_cast<const char*>(values.data()), bytes);
}

void ExampleBuilder::SetInt64s(absl::string_view name,
                               absl::Span<const int64_t> values) {
  std::string& out = Slot(name);
  size_t bytes = 0;
  for (const int64_t value : values) {
    bytes += VarintBytes(static_cast<uint64_t>(value));
  }
  AppendBytesHeader(kInt64List, values.empty() ? 0 : FieldBytes(bytes), out);
  if (values.empty()) return;
  AppendBytesHeader(1, bytes, out);
  for (const int64_t value : values) {
    AppendVarint(static_cast<uint64_t>(value), out);
  }
}

void ExampleBuilder::SetBytes(absl::string_view name,
                              absl::Span<const absl::string_view> values) {
  std::string& out = Slot(name);
  size_t bytes = 0;
  for (const absl::string_view value : values) {
    bytes += FieldBytes(value.size());
  }
  AppendBytesHeader(kBytesList, bytes, out);
  for (const absl::string_view value : values) {
    AppendBytesHeader(1, value.size(), out);
    out.append(value.data(), value.size());
  }
}

void ExampleBuilder::SetFloat(absl::string_view name, float value) {
  SetFloats(name, absl::MakeConstSpan(&value, 1));
}

void ExampleBuilder::SetInt64(absl::string_view name, int64_t value) {
  SetInt64s(name, absl::MakeConstSpan(&value, 1));
}

void ExampleBuilder::SetBytes(absl::string_view name, absl::string_view value) {
  SetBytes(name, absl::MakeConstSpan(&value, 1));
}

std::string ExampleBuilder::Serialize() const {
  std::string out;
  SerializeTo(out);
  return out;
}

void ExampleBuilder::SerializeTo(std::string& out) const {
  const auto entry_bytes = [](const std::pair<std::string, std::string>& f) {
    return FieldBytes(f.first.size()) + FieldBytes(f.second.size());
  };
  size_t bytes = 0;
  for (size_t i = 0; i < size_; ++i) {
    bytes += FieldBytes(entry_bytes(features_[i]));
  }
  out.clear();
  out.reserve(FieldBytes(bytes));
  AppendBytesHeader(1, bytes, out);
  for (size_t i = 0; i < size_; ++i) {
    const auto& feature = features_[i];
    AppendBytesHeader(1, entry_bytes(feature), out);
    AppendBytesHeader(1, feature.first.size(), out);
    out += feature.first;
    AppendBytesHeader(2, feature.second.size(), out);
    out += feature.second;
  }
}

}  // namespace elasticdl::data
