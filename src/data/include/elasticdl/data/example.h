// tf.Example records without Protocol Buffers: a view that parses in place and
// a builder that serializes. The message is that of elasticdl/v1/example.proto.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace elasticdl::data {

enum class FeatureKind { kNone, kBytes, kFloat, kInt64 };

absl::string_view FeatureKindName(FeatureKind kind);

// One feature of an example; points into the record. Thread-compatible, cheap
// to copy. Getters fail with INVALID_ARGUMENT on another kind or another number
// of values than asked for, and with DATA_LOSS on malformed bytes.
class FeatureView {
 public:
  FeatureView() = default;

  absl::string_view name() const { return name_; }
  FeatureKind kind() const { return kind_; }

  // Number of values.
  absl::StatusOr<size_t> size() const;
  // Exactly out.size() values.
  absl::Status CopyFloats(absl::Span<float> out) const;
  absl::Status CopyInt64s(absl::Span<int64_t> out) const;
  absl::StatusOr<std::vector<float>> Floats() const;
  absl::StatusOr<std::vector<int64_t>> Int64s() const;
  // The values point into the record.
  absl::StatusOr<std::vector<absl::string_view>> Bytes() const;
  // The only value.
  absl::StatusOr<int64_t> Int64() const;
  absl::StatusOr<float> Float() const;
  absl::StatusOr<absl::string_view> BytesValue() const;

 private:
  friend class ExampleView;
  absl::Status CheckKind(FeatureKind kind) const;
  absl::Status CountMismatch(size_t want) const;
  absl::Status Malformed() const;

  absl::string_view name_;
  FeatureKind kind_ = FeatureKind::kNone;
  // Fields of the Feature message from the first of the last run of lists of
  // this kind (a later list of another kind replaces earlier ones).
  absl::string_view body_;
};

// A parsed record. Thread-compatible. The record must outlive it. Parsing finds
// the features; their values are checked when they are read.
class ExampleView {
 public:
  // DATA_LOSS when the bytes are no tf.Example.
  static absl::StatusOr<ExampleView> Parse(absl::string_view record);

  // Null when there is no such feature. If a name occurs twice the last counts.
  const FeatureView* Find(absl::string_view name) const;
  const absl::InlinedVector<FeatureView, 4>& features() const {
    return features_;
  }

  // Shortcuts that fail with NOT_FOUND, naming the feature, when it is missing.
  absl::StatusOr<FeatureView> Get(absl::string_view name) const;
  absl::Status CopyFloats(absl::string_view name, absl::Span<float> out) const;
  absl::Status CopyInt64s(absl::string_view name,
                          absl::Span<int64_t> out) const;
  absl::StatusOr<int64_t> Int64(absl::string_view name) const;
  absl::StatusOr<float> Float(absl::string_view name) const;
  absl::StatusOr<absl::string_view> Bytes(absl::string_view name) const;

  // One line for people, long lists cut after `max_values` values.
  std::string DebugString(size_t max_values = 8) const;

 private:
  absl::Status ParseFeatures(absl::string_view bytes);
  absl::Status ParseEntry(absl::string_view bytes);
  std::string Names() const;

  absl::InlinedVector<FeatureView, 4> features_;
};

// Builds a record. Thread-compatible. Features keep the order of the first Set;
// setting a name again replaces its values.
class ExampleBuilder {
 public:
  void SetFloats(absl::string_view name, absl::Span<const float> values);
  void SetInt64s(absl::string_view name, absl::Span<const int64_t> values);
  void SetBytes(absl::string_view name,
                absl::Span<const absl::string_view> values);
  void SetFloat(absl::string_view name, float value);
  void SetInt64(absl::string_view name, int64_t value);
  void SetBytes(absl::string_view name, absl::string_view value);

  std::string Serialize() const;
  // Into `out`, whose memory is reused.
  void SerializeTo(std::string& out) const;
  // Forgets all features.
  void Clear() { size_ = 0; }

 private:
  std::string& Slot(absl::string_view name);

  // Name and serialized Feature message; the first size_ are in use.
  std::vector<std::pair<std::string, std::string>> features_;
  size_t size_ = 0;
};

}  // namespace elasticdl::data
