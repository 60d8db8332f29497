// Parses tf.Example records in place.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/example.h"
#include "example_wire.h"

namespace elasticdl::data {
namespace {

using internal::WireReader;
using internal::WireType;

// Field numbers of the messages.
constexpr uint32_t kExampleFeatures = 1;
constexpr uint32_t kFeaturesFeature = 1;
constexpr uint32_t kEntryKey = 1;
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kListValue = 1;

FeatureKind KindOfField(uint32_t field) {
  switch (field) {
    case 1:
      return FeatureKind::kBytes;
    case 2:
      return FeatureKind::kFloat;
    case 3:
      return FeatureKind::kInt64;
    default:
      return FeatureKind::kNone;
  }
}

// Calls on_list(bytes) for each list of a Feature's body. False on malformed
// bytes or when on_list says so.
template <typename OnList>
bool ForEachList(absl::string_view body, OnList on_list) {
  WireReader reader(body);
  while (!reader.done()) {
    uint32_t field = 0;
    WireType type{};
    if (!reader.ReadTag(field, type)) return false;
    absl::string_view list;
    if (KindOfField(field) != FeatureKind::kNone && type == WireType::kBytes) {
      if (!reader.ReadBytes(list) || !on_list(list)) return false;
    } else if (!reader.Skip(field, type)) {
      return false;
    }
  }
  return true;
}

// Calls on_packed(bytes) for each packed run of values and on_single(reader)
// for each value that stands alone with wire type `single`.
template <typename OnPacked, typename OnSingle>
bool ForEachRun(absl::string_view body, WireType single, OnPacked on_packed,
                OnSingle on_single) {
  return ForEachList(body, [&](absl::string_view list) {
    WireReader reader(list);
    while (!reader.done()) {
      uint32_t field = 0;
      WireType type{};
      if (!reader.ReadTag(field, type)) return false;
      absl::string_view run;
      if (field == kListValue && type == WireType::kBytes) {
        if (!reader.ReadBytes(run) || !on_packed(run)) return false;
      } else if (field == kListValue && type == single) {
        if (!on_single(reader)) return false;
      } else if (!reader.Skip(field, type)) {
        return false;
      }
    }
    return true;
  });
}

// Calls on_run(first, count) with the values' little-endian bytes.
template <typename OnRun>
bool ForEachFloatRun(absl::string_view body, OnRun on_run) {
  return ForEachRun(
      body, WireType::kFixed32,
      [&](absl::string_view run) {
        if (run.size() % sizeof(float) != 0) return false;
        return on_run(run.data(), run.size() / sizeof(float));
      },
      [&](WireReader& reader) {
        uint32_t bits = 0;
        if (!reader.ReadFixed32(bits)) return false;
        return on_run(reinterpret_cast<const char*>(&bits), size_t{1});
      });
}

template <typename OnValue>
bool ForEachInt64(absl::string_view body, OnValue on_value) {
  const auto one = [&](WireReader& reader) {
    uint64_t value = 0;
    return reader.ReadVarint(value) && on_value(static_cast<int64_t>(value));
  };
  return ForEachRun(
      body, WireType::kVarint,
      [&](absl::string_view run) {
        WireReader reader(run);
        while (!reader.done()) {
          if (!one(reader)) return false;
        }
        return true;
      },
      one);
}

template <typename OnValue>
bool ForEachBytes(absl::string_view body, OnValue on_value) {
  return ForEachRun(body, WireType::kBytes, on_value,
                    [](WireReader&) { return false; });
}

absl::Status NoExample(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not a tf.Example: ", what));
}

// Number of values, whatever they are, or false.
bool CountValues(FeatureKind kind, absl::string_view body, size_t& count) {
  count = 0;
  switch (kind) {
    case FeatureKind::kNone:
      return true;
    case FeatureKind::kBytes:
      return ForEachBytes(body, [&](absl::string_view) { return ++count > 0; });
    case FeatureKind::kFloat:
      return ForEachFloatRun(body, [&](const char*, size_t n) {
        count += n;
        return true;
      });
    case FeatureKind::kInt64:
      return ForEachInt64(body, [&](int64_t) { return ++count > 0; });
  }
  return false;
}

}  // namespace

absl::string_view FeatureKindName(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kNone:
      return "empty";
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloat:
      return "float";
    case FeatureKind::kInt64:
      return "int64";
  }
  return "unknown";
}

absl::Status FeatureView::CheckKind(FeatureKind kind) const {
  if (kind_ == kind) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("feature '", name_, "' is ", FeatureKindName(kind_),
                   ", not ", FeatureKindName(kind)));
}

absl::Status FeatureView::Malformed() const {
  return absl::DataLossError(
      absl::StrCat("feature '", name_, "' has malformed bytes"));
}

absl::Status FeatureView::CountMismatch(size_t want) const {
  size_t count = 0;
  if (!CountValues(kind_, body_, count)) return Malformed();
  return absl::InvalidArgumentError(
      absl::StrCat("feature '", name_, "' has ", count, " values, not ", want));
}

absl::StatusOr<size_t> FeatureView::size() const {
  size_t count = 0;
  if (!CountValues(kind_, body_, count)) return Malformed();
  return count;
}

absl::Status FeatureView::CopyFloats(absl::Span<float> out) const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kFloat));
  size_t filled = 0;
  const bool ok = ForEachFloatRun(body_, [&](const char* first, size_t count) {
    if (count > out.size() - filled) return false;
    std::memcpy(out.data() + filled, first, count * sizeof(float));
    filled += count;
    return true;
  });
  if (!ok || filled != out.size()) return CountMismatch(out.size());
  return absl::OkStatus();
}

absl::Status FeatureView::CopyInt64s(absl::Span<int64_t> out) const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kInt64));
  size_t filled = 0;
  const bool ok = ForEachInt64(body_, [&](int64_t value) {
    if (filled == out.size()) return false;
    out[filled++] = value;
    return true;
  });
  if (!ok || filled != out.size()) return CountMismatch(out.size());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> FeatureView::Floats() const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kFloat));
  ELASTICDL_ASSIGN_OR_RETURN(const size_t count, size());
  std::vector<float> values(count);
  ELASTICDL_RETURN_IF_ERROR(CopyFloats(absl::MakeSpan(values)));
  return values;
}

absl::StatusOr<std::vector<int64_t>> FeatureView::Int64s() const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kInt64));
  std::vector<int64_t> values;
  const bool ok = ForEachInt64(body_, [&](int64_t value) {
    values.push_back(value);
    return true;
  });
  if (!ok) return Malformed();
  return values;
}

absl::StatusOr<std::vector<absl::string_view>> FeatureView::Bytes() const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kBytes));
  std::vector<absl::string_view> values;
  const bool ok = ForEachBytes(body_, [&](absl::string_view value) {
    values.push_back(value);
    return true;
  });
  if (!ok) return Malformed();
  return values;
}

absl::StatusOr<int64_t> FeatureView::Int64() const {
  int64_t value = 0;
  ELASTICDL_RETURN_IF_ERROR(CopyInt64s(absl::MakeSpan(&value, 1)));
  return value;
}

absl::StatusOr<float> FeatureView::Float() const {
  float value = 0;
  ELASTICDL_RETURN_IF_ERROR(CopyFloats(absl::MakeSpan(&value, 1)));
  return value;
}

absl::StatusOr<absl::string_view> FeatureView::BytesValue() const {
  ELASTICDL_RETURN_IF_ERROR(CheckKind(FeatureKind::kBytes));
  absl::string_view value;
  size_t count = 0;
  const bool ok = ForEachBytes(body_, [&](absl::string_view one) {
    value = one;
    return ++count == 1;
  });
  if (!ok || count != 1) return CountMismatch(1);
  return value;
}

absl::StatusOr<ExampleView> ExampleView::Parse(absl::string_view record) {
  ExampleView example;
  WireReader reader(record);
  while (!reader.done()) {
    uint32_t field = 0;
    WireType type{};
    if (!reader.ReadTag(field, type)) return NoExample("bad field");
    if (field == kExampleFeatures && type == WireType::kBytes) {
      absl::string_view features;
      if (!reader.ReadBytes(features)) return NoExample("cut short");
      ELASTICDL_RETURN_IF_ERROR(example.ParseFeatures(features));
    } else if (!reader.Skip(field, type)) {
      return NoExample("bad field value");
    }
  }
  return example;
}

absl::Status ExampleView::ParseFeatures(absl::string_view bytes) {
  WireReader reader(bytes);
  while (!reader.done()) {
    uint32_t field = 0;
    WireType type{};
    if (!reader.ReadTag(field, type)) return NoExample("bad features");
    if (field == kFeaturesFeature && type == WireType::kBytes) {
      absl::string_view entry;
      if (!reader.ReadBytes(entry)) return NoExample("features cut short");
      ELASTICDL_RETURN_IF_ERROR(ParseEntry(entry));
    } else if (!reader.Skip(field, type)) {
      return NoExample("bad features value");
    }
  }
  return absl::OkStatus();
}

absl::Status ExampleView::ParseEntry(absl::string_view bytes) {
  FeatureView feature;
  absl::string_view value;
  WireReader reader(bytes);
  while (!reader.done()) {
    uint32_t field = 0;
    WireType type{};
    if (!reader.ReadTag(field, type)) return NoExample("bad feature");
    if (type == WireType::kBytes &&
        (field == kEntryKey || field == kEntryValue)) {
      auto& target = field == kEntryKey ? feature.name_ : value;
      if (!reader.ReadBytes(target)) return NoExample("feature cut short");
    } else if (!reader.Skip(field, type)) {
      return NoExample("bad feature entry");
    }
  }
  WireReader lists(value);
  while (!lists.done()) {
    const char* start = lists.position();
    uint32_t field = 0;
    WireType type{};
    if (!lists.ReadTag(field, type) || !lists.Skip(field, type)) {
      return NoExample(
          absl::StrCat("bad value of feature '", feature.name_, "'"));
    }
    const FeatureKind kind = KindOfField(field);
    if (kind == FeatureKind::kNone || type != WireType::kBytes) continue;
    if (kind != feature.kind_) {
      feature.kind_ = kind;
      feature.body_ = absl::string_view(
          start, static_cast<size_t>(value.data() + value.size() - start));
    }
  }
  features_.push_back(feature);
  return absl::OkStatus();
}

const FeatureView* ExampleView::Find(absl::string_view name) const {
  for (auto it = features_.rbegin(); it != features_.rend(); ++it) {
    if (it->name() == name) return &*it;
  }
  return nullptr;
}

// For a message: an example may have hundreds of features.
std::string ExampleView::Names() const {
  constexpr size_t kMost = 20;
  if (features_.empty()) return "; it has none";
  std::string names = "; it has ";
  for (size_t i = 0; i < std::min(features_.size(), kMost); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", "'",
                    absl::CHexEscape(features_[i].name()), "'");
  }
  if (features_.size() > kMost) {
    absl::StrAppend(&names, " and ", features_.size() - kMost, " more");
  }
  return names;
}

absl::StatusOr<FeatureView> ExampleView::Get(absl::string_view name) const {
  const FeatureView* feature = Find(name);
  if (feature == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the example has no feature '", name, "'", Names()));
  }
  return *feature;
}

absl::Status ExampleView::CopyFloats(absl::string_view name,
                                     absl::Span<float> out) const {
  ELASTICDL_ASSIGN_OR_RETURN(const FeatureView feature, Get(name));
  return feature.CopyFloats(out);
}

absl::Status ExampleView::CopyInt64s(absl::string_view name,
                                     absl::Span<int64_t> out) const {
  ELASTICDL_ASSIGN_OR_RETURN(const FeatureView feature, Get(name));
  return feature.CopyInt64s(out);
}

absl::StatusOr<int64_t> ExampleView::Int64(absl::string_view name) const {
  ELASTICDL_ASSIGN_OR_RETURN(const FeatureView feature, Get(name));
  return feature.Int64();
}

absl::StatusOr<float> ExampleView::Float(absl::string_view name) const {
  ELASTICDL_ASSIGN_OR_RETURN(const FeatureView feature, Get(name));
  return feature.Float();
}

absl::StatusOr<absl::string_view> ExampleView::Bytes(
    absl::string_view name) const {
  ELASTICDL_ASSIGN_OR_RETURN(const FeatureView feature, Get(name));
  return feature.BytesValue();
}

}  // namespace elasticdl::data
