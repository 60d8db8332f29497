// Maps raw feature values to ids, for feed functions. No libtorch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace elasticdl {

// Hashes text to [0, num_bins), identically on every machine (64-bit FNV-1a,
// mixed).
class Hashing {
 public:
  explicit Hashing(int64_t num_bins) : num_bins_(num_bins) {}
  int64_t operator()(absl::string_view text) const {
    uint64_t hash = 14695981039346656037u;
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    hash ^= hash >> 32;
    return static_cast<int64_t>(hash % static_cast<uint64_t>(num_bins_));
  }
  int64_t operator()(int64_t value) const {
    return (*this)(std::to_string(value));
  }
  int64_t size() const { return num_bins_; }

 private:
  const int64_t num_bins_;
};

// Maps a number to the index of its bucket; `bins` are the left ends of all
// buckets except the first, ascending.
class Discretization {
 public:
  explicit Discretization(std::vector<double> bins) : bins_(std::move(bins)) {}
  int64_t operator()(double value) const {
    return std::upper_bound(bins_.begin(), bins_.end(), value) - bins_.begin();
  }
  int64_t size() const { return static_cast<int64_t>(bins_.size()) + 1; }

 private:
  const std::vector<double> bins_;
};

// Maps text to its index in a vocabulary, and unknown text to one of the
// num_oov_tokens indices after it.
class IndexLookup {
 public:
  explicit IndexLookup(const std::vector<std::string>& vocabulary,
                       int64_t num_oov_tokens = 1)
      : known_(static_cast<int64_t>(vocabulary.size())), oov_(num_oov_tokens) {
    for (const std::string& word : vocabulary) {
      index_.emplace(word, static_cast<int64_t>(index_.size()));
    }
  }
  int64_t operator()(absl::string_view text) const {
    const auto it = index_.find(std::string(text.data(), text.size()));
    return it == index_.end() ? known_ + oov_(text) : it->second;
  }
  int64_t size() const { return known_ + oov_.size(); }

 private:
  const int64_t known_;
  const Hashing oov_;
  std::unordered_map<std::string, int64_t> index_;
};

// round(log_base(value)) in [0, num_bins); values below 1 give 0.
class LogRound {
 public:
  explicit LogRound(int64_t num_bins, double base = std::exp(1.0))
      : num_bins_(num_bins), scale_(1.0 / std::log(base)) {}
  int64_t operator()(double value) const {
    if (!(value >= 1.0)) return 0;
    const double bin = std::round(std::log(value) * scale_);
    return std::min(static_cast<int64_t>(bin), num_bins_ - 1);
  }
  int64_t size() const { return num_bins_; }

 private:
  const int64_t num_bins_;
  const double scale_;
};

// (value - subtractor) / divisor.
class Normalizer {
 public:
  Normalizer(double subtractor, double divisor)
      : subtractor_(subtractor), divisor_(divisor) {}
  double operator()(double value) const {
    return (value - subtractor_) / divisor_;
  }

 private:
  const double subtractor_;
  const double divisor_;
};

// Lets several features share one table: adds the offset of feature i to its
// ids. ConcatenateWithOffset({10, 5, 7}) has offsets 0, 10, 15 and size 22.
class ConcatenateWithOffset {
 public:
  explicit ConcatenateWithOffset(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      offsets_.push_back(size_);
      size_ += size;
    }
  }
  int64_t operator()(size_t feature, int64_t id) const {
    return offsets_.at(feature) + id;
  }
  int64_t size() const { return size_; }

 private:
  std::vector<int64_t> offsets_;
  int64_t size_ = 0;
};

}  // namespace elasticdl
