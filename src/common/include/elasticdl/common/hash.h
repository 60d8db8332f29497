// The hashes of ElasticDL. Checksums of data are crc32.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl {

inline constexpr uint64_t kFnv1aStart = 0xcbf29ce484222325;

// FNV-1a, 64 bits: the same on every machine, unlike std::hash, but not safe
// against attackers. `hash` continues from an earlier part.
constexpr uint64_t Fnv1a(absl::string_view text, uint64_t hash = kFnv1aStart) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// The finaliser of SplitMix64 alone: a bijection, and 0 stays 0.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
// Of a number; neighbours get hashes that have nothing in common.
constexpr uint64_t MixHash(uint64_t x) {
  return MixBits(x + 0x9e3779b97f4a7c15);
}
// UnmixHash(MixHash(x)) == x: no two numbers have the same hash.
constexpr uint64_t UnmixHash(uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089;
  return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15;
}

// SplitMix64 (Steele, Lea, Flood 2014): random numbers, the same on every
// machine, as a hash of a counter. Frozen: the order of an epoch's records,
// generated data and initial embedding rows follow from it. Thread-compatible.
class SplitMix64 {
 public:
  constexpr explicit SplitMix64(uint64_t state) : state_(state) {}

  constexpr uint64_t Next() {
    const uint64_t value = MixHash(state_);
    state_ += 0x9e3779b97f4a7c15;
    return value;
  }

 private:
  uint64_t state_;
};

// SHA-256 of what is added: for content that is not trusted. Thread-compatible.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(absl::string_view data);
  // 64 digits. Ends it.
  std::string Hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Hex(absl::string_view data);

}  // namespace elasticdl
