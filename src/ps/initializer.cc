#include "elasticdl/ps/initializer.h"

#include <cmath>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/hash.h"
#include "elasticdl/ps/bucket.h"

namespace elasticdl::ps {
namespace {

constexpr double kDefaultScale = 0.05;

// In [0, 1), 53 bits.
double Uniform(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// The C library's logarithm has variants for different processors, which may
// differ in the last bit. This one has only additions and multiplications.
double Log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * t * sum + exponent * 0.69314718055994531;
}

// The inverse of the normal distribution (Wichura's AS 241, 7 digits), for
// 0 < p < 1.
double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r +
            3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  double value = 0;
  if (r <= 5) {
    r -= 1.6;
    value = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r +
             1.4234372777) /
            ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    r -= 5;
    value = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r +
             6.6579051150) /
            ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0 ? -value : value;
}

// Strictly between 0 and 1.
double OpenUniform(uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1.0p-52;
}

// The distribution function at -2 and 2.
constexpr double kBelowMinusTwo = 0.022750131948179195;
constexpr double kWithinTwo = 1 - 2 * kBelowMinusTwo;

struct Call {
  std::string name;
  // In their order; those with a name of Keras are in `named` as well.
  std::vector<double> arguments;
  std::map<std::string, double> named;
};

absl::StatusOr<Call> ParseCall(absl::string_view text) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer '", text, "': ", why));
  };
  Call call;
  absl::string_view name = text;
  const size_t open = text.find('(');
  if (open != absl::string_view::npos) {
    name = text.substr(0, open);
    absl::string_view rest = absl::StripTrailingAsciiWhitespace(text);
    if (rest.back() != ')') return bad("there is no ')' at its end");
    rest = rest.substr(open + 1, rest.size() - open - 2);
    for (absl::string_view piece :
         absl::StrSplit(rest, absl::ByAnyChar(",;"), absl::SkipWhitespace())) {
      std::string key;
      const size_t equals = piece.find('=');
      if (equals != absl::string_view::npos) {
        key = std::string(absl::StripAsciiWhitespace(piece.substr(0, equals)));
        piece.remove_prefix(equals + 1);
      }
      double value = 0;
      if (!absl::SimpleAtod(absl::StripAsciiWhitespace(piece), &value) ||
          !std::isfinite(value)) {
        return bad(absl::StrCat("'", piece, "' is not a number"));
      }
      if (key.empty()) {
        call.arguments.push_back(value);
      } else {
        call.named[key] = value;
      }
    }
  }
  call.name = absl::StrReplaceAll(
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(name)), {{"_", ""}});
  return call;
}

}  // namespace

absl::StatusOr<Initializer> Initializer::Parse(absl::string_view text) {
  Initializer result;
  const absl::StatusOr<Call> call = ParseCall(text);
  if (!call.ok()) return call.status();
  const std::string& name = call->name;
  std::vector<double> arguments = call->arguments;
  std::map<std::string, double> named = call->named;
  // Takes the arguments of these names, each with its default, behind those
  // without a name.
  const auto take =
      [&](std::initializer_list<std::pair<const char*, double>> keys) {
        size_t at = 0;
        for (const auto& [key, fallback] : keys) {
          if (at++ < arguments.size()) continue;
          const auto found = named.find(key);
          arguments.push_back(found == named.end() ? fallback : found->second);
          if (found != named.end()) named.erase(found);
        }
      };
  size_t most = 0;
  if (name.empty() || name == "zeros" || name == "ones") {
    result.a_ = name == "ones" ? 1 : 0;
  } else if (name == "constant") {
    if (!named.empty()) take({{"value", 0}});
    if (arguments.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "initializer '", text, "' takes one argument, its value"));
    }
    most = 1;
    result.a_ = arguments[0];
  } else if (name == "uniform" || name == "randomuniform") {
    most = 2;
    result.kind_ = Kind::kUniform;
    if (!named.empty()) {
      take({{"minval", -kDefaultScale}, {"maxval", kDefaultScale}});
    }
    const double scale = arguments.empty() ? kDefaultScale : arguments[0];
    result.a_ = arguments.size() == 2 ? arguments[0] : -scale;
    result.b_ = arguments.size() == 2 ? arguments[1] : scale;
  } else if (name == "normal" || name == "randomnormal" ||
             name == "truncatednormal") {
    most = 2;
    result.kind_ = name == "truncatednormal" ? Kind::kTruncated : Kind::kNormal;
    take({{"stddev", kDefaultScale}, {"mean", 0}});
    result.a_ = arguments[0];
    result.b_ = arguments[1];
  } else if (name == "glorotuniform" || name == "heuniform") {
    result.kind_ = Kind::kUniform;
    result.fan_ = name == "heuniform" ? Fan::kHe : Fan::kGlorot;
  } else if (name == "glorotnormal" || name == "henormal") {
    result.kind_ = Kind::kTruncated;
    result.fan_ = name == "henormal" ? Fan::kHe : Fan::kGlorot;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "initializer '", text,
        "' is not known: zeros, ones, constant, uniform, normal, "
        "truncated_normal, glorot_uniform, glorot_normal, he_uniform or "
        "he_normal"));
  }
  if (!named.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("initializer '", text,
                                                   "' has no argument '",
                                                   named.begin()->first, "'"));
  }
  if (arguments.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("initializer '", text, "' has too many arguments"));
  }
  return result;
}

void Initializer::Fill(uint64_t seed, uint64_t row, float* values,
                       size_t dim) const {
  double a = a_;
  double b = b_;
  if (fan_ != Fan::kNone) {
    // Glorot: 2 / (fan_in + fan_out); He: 2 / fan_in.
    const double variance =
        (fan_ == Fan::kHe ? 2.0 : 1.0) / static_cast<double>(dim);
    if (kind_ == Kind::kUniform) {
      b = std::sqrt(3 * variance);
      a = -b;
    } else {
      // What is cut off takes this part of the deviation.
      a = std::sqrt(variance) / 0.87962566103423978;
    }
  }
  SplitMix64 random(MixHash(seed) ^ row);
  for (size_t i = 0; i < dim; ++i) {
    const uint64_t bits = random.Next();
    double value = a;
    switch (kind_) {
      case Kind::kConstant:
        break;
      case Kind::kUniform:
        value = a + (b - a) * Uniform(bits);
        break;
      case Kind::kNormal:
        value = b + a * NormalQuantile(OpenUniform(bits));
        break;
      case Kind::kTruncated:
        value = b + a * NormalQuantile(kBelowMinusTwo +
                                       kWithinTwo * OpenUniform(bits));
        break;
    }
    values[i] = static_cast<float>(value);
  }
}

std::string Initializer::ToString() const {
  if (fan_ != Fan::kNone) {
    return absl::StrCat(fan_ == Fan::kHe ? "he_" : "glorot_",
                        kind_ == Kind::kUniform ? "uniform" : "normal");
  }
  // All digits: the same bits come back.
  switch (kind_) {
    case Kind::kUniform:
      return absl::StrFormat("uniform(%.17g,%.17g)", a_, b_);
    case Kind::kNormal:
      return absl::StrFormat("normal(%.17g,%.17g)", a_, b_);
    case Kind::kTruncated:
      return absl::StrFormat("truncated_normal(%.17g,%.17g)", a_, b_);
    case Kind::kConstant:
      break;
  }
  return absl::StrFormat("constant(%.17g)", a_);
}

}  // namespace elasticdl::ps
