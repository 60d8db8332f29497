// Initial values of embedding rows: a function of (seed, table, id) alone, so
// that a row has the same ones wherever and whenever it is created.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::ps {

// A value; thread-safe.
class Initializer {
 public:
  // A name of Keras or of elasticdl::Embedding, in any case and with or without
  // underscores, and arguments if any, by order or by Keras' names (value,
  // minval, maxval, stddev, mean):
  //   zeros, ones, constant(VALUE)
  //   uniform(SCALE = 0.05)            in [-SCALE, SCALE); RandomUniform
  //   uniform(FROM, TO)
  //   normal(STDDEV = 0.05, MEAN = 0)            RandomNormal
  //   truncated_normal(STDDEV = 0.05, MEAN = 0)  within two deviations
  //   glorot_uniform, glorot_normal, he_uniform, he_normal
  // The last four take the row's width for both of their fans, because a table
  // has no fixed number of rows. INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<Initializer> Parse(absl::string_view text);

  // `row` identifies the row: HashRow. The arithmetic is the same on every
  // processor.
  void Fill(uint64_t seed, uint64_t row, float* values, size_t dim) const;

  // Parse(ToString()) gives the same initializer.
  std::string ToString() const;

 private:
  enum class Kind { kConstant, kUniform, kNormal, kTruncated };
  // What the deviation or half-width is divided by.
  enum class Fan { kNone, kGlorot, kHe };

  Kind kind_ = Kind::kConstant;
  Fan fan_ = Fan::kNone;
  // kConstant: the value. kUniform: the limits. Else deviation and mean.
  double a_ = 0;
  double b_ = 0;
};

}  // namespace elasticdl::ps
