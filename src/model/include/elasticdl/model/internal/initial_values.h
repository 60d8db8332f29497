// Initial values of an Embedding: what EmbeddingOptions.initializer says.
// Reads the same texts as elasticdl::ps::Initializer, which model files cannot
// use because they do not link our libraries.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace elasticdl::internal {

// A value. Throws on a text that is wrong.
class InitialValues {
 public:
  // `scale` is for names of distributions without arguments.
  InitialValues(const std::string& text, double scale);

  // With random numbers of libtorch's generator.
  torch::Tensor Make(int64_t rows, int64_t dim) const;
  // For elasticdl::ps::Initializer::Parse.
  std::string ToString() const;

 private:
  enum class Kind { kConstant, kUniform, kNormal, kTruncated };
  struct Known {
    const char* text;
    Kind kind;
    // Keras' names of the arguments, in their order.
    std::vector<std::string> arguments;
    // Glorot and He: the row's width times the variance. 0: others.
    double variance;
  };
  // By name in lower case, without underscores.
  static const std::map<std::string, Known>& AllKnown();

  // Reads "name(1, key=2)" into name_ and `arguments`.
  void ParseCall(const std::string& text,
                 std::map<std::string, double>& arguments);

  // Of one of AllKnown().
  std::string name_;
  // kConstant: the value. kUniform: the limits. Else deviation and mean.
  double a_ = 0;
  double b_ = 0;
};

inline const std::map<std::string, InitialValues::Known>&
InitialValues::AllKnown() {
  static const auto& known = *new std::map<std::string, Known>{
      {"zeros", {"zeros", Kind::kConstant, {}, 0}},
      {"ones", {"ones", Kind::kConstant, {}, 0}},
      {"constant", {"constant", Kind::kConstant, {"value"}, 0}},
      {"uniform", {"uniform", Kind::kUniform, {"minval", "maxval"}, 0}},
      {"normal", {"normal", Kind::kNormal, {"stddev", "mean"}, 0}},
      {"truncatednormal",
       {"truncated_normal", Kind::kTruncated, {"stddev", "mean"}, 0}},
      {"glorotuniform", {"glorot_uniform", Kind::kUniform, {}, 1}},
      {"glorotnormal", {"glorot_normal", Kind::kTruncated, {}, 1}},
      {"heuniform", {"he_uniform", Kind::kUniform, {}, 2}},
      {"henormal", {"he_normal", Kind::kTruncated, {}, 2}},
  };
  return known;
}

inline void InitialValues::ParseCall(const std::string& text,
                                     std::map<std::string, double>& arguments) {
  std::string compact;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) compact += c;
  }
  const size_t open = std::min(compact.find('('), compact.size());
  for (const char c : compact.substr(0, open)) {
    if (c != '_') {
      name_ += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  // Keras' names.
  if (name_ == "randomuniform") name_ = "uniform";
  if (name_ == "randomnormal") name_ = "normal";
  const auto known = AllKnown().find(name_);
  TORCH_CHECK_VALUE(
      known != AllKnown().end(), "Embedding: initializer '", text,
      "' is not known: zeros, ones, constant(VALUE), uniform, normal, "
      "truncated_normal, glorot_uniform, glorot_normal, he_uniform or "
      "he_normal");
  if (open == compact.size()) return;
  TORCH_CHECK_VALUE(compact.back() == ')', "Embedding: initializer '", text,
                    "' has no ')' at its end");
  std::string_view rest(compact);
  rest = rest.substr(open + 1, rest.size() - open - 2);
  const std::vector<std::string>& keys = known->second.arguments;
  for (size_t next = 0; !rest.empty(); ++next) {
    const size_t end = std::min(rest.find_first_of(",;"), rest.size());
    std::string_view number = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = number.find('=');
    const bool by_order = equals == std::string_view::npos;
    TORCH_CHECK_VALUE(!by_order || next < keys.size(),
                      "Embedding: initializer '", text,
                      "' has too many arguments");
    const std::string key =
        by_order ? keys[next] : std::string(number.substr(0, equals));
    if (!by_order) number.remove_prefix(equals + 1);
    TORCH_CHECK_VALUE(std::find(keys.begin(), keys.end(), key) != keys.end(),
                      "Embedding: initializer '", text, "' has no argument '",
                      key, "'");
    double value = 0;
    const char* const last = number.data() + number.size();
    const auto [stop, error] = std::from_chars(number.data(), last, value);
    TORCH_CHECK_VALUE(
        error == std::errc() && stop == last && std::isfinite(value),
        "Embedding: initializer '", text, "': '", number, "' is not a number");
    TORCH_CHECK_VALUE(arguments.emplace(key, value).second,
                      "Embedding: initializer '", text, "' has '", key,
                      "' twice");
    // One limit by order is the half-width.
    if (by_order && key == "minval" && rest.empty()) {
      arguments["maxval"] = value;
      arguments["minval"] = -value;
    }
  }
}

inline InitialValues::InitialValues(const std::string& text, double scale) {
  TORCH_CHECK_VALUE(std::isfinite(scale) && scale >= 0,
                    "Embedding: initial_scale is ", scale);
  std::map<std::string, double> arguments;
  ParseCall(text, arguments);
  const auto get = [&](const char* key, double otherwise) {
    const auto found = arguments.find(key);
    return found == arguments.end() ? otherwise : found->second;
  };
  switch (AllKnown().at(name_).kind) {
    case Kind::kConstant:
      TORCH_CHECK_VALUE(name_ != "constant" || !arguments.empty(),
                        "Embedding: initializer '", text,
                        "' needs its value: constant(VALUE)");
      a_ = get("value", name_ == "ones" ? 1 : 0);
      break;
    case Kind::kUniform:
      a_ = get("minval", -scale);
      b_ = get("maxval", scale);
      TORCH_CHECK_VALUE(a_ <= b_, "Embedding: initializer '", text,
                        "': the range is empty");
      break;
    case Kind::kNormal:
    case Kind::kTruncated:
      a_ = get("stddev", scale);
      b_ = get("mean", 0);
      TORCH_CHECK_VALUE(a_ >= 0, "Embedding: initializer '", text,
                        "': the deviation is negative");
      break;
  }
}

inline torch::Tensor InitialValues::Make(int64_t rows, int64_t dim) const {
  torch::Tensor out = torch::empty({rows, dim});
  const Known& known = AllKnown().at(name_);
  // As on parameter servers: both fans are the row's width, because a table
  // there has no fixed number of rows.
  const bool fans = known.variance > 0;
  const double deviation = std::sqrt(known.variance / static_cast<double>(dim));
  switch (known.kind) {
    case Kind::kConstant:
      return out.fill_(a_);
    case Kind::kUniform: {
      const double limit = std::sqrt(3.0) * deviation;
      return fans ? out.uniform_(-limit, limit) : out.uniform_(a_, b_);
    }
    case Kind::kNormal:
      return out.normal_(b_, a_);
    case Kind::kTruncated:
      break;
  }
  // Within two deviations, by the inverse of the distribution function. What is
  // cut off takes a part of the deviation.
  const double edge = std::erf(std::sqrt(2.0));
  out.uniform_(-edge, edge).erfinv_().mul_(std::sqrt(2.0)).clamp_(-2, 2);
  return fans ? out.mul_(deviation / 0.87962566103423978)
              : out.mul_(a_).add_(b_);
}

inline std::string InitialValues::ToString() const {
  const Known& known = AllKnown().at(name_);
  if (known.arguments.empty()) return known.text;
  // All digits that are needed, and no more.
  const auto digits = [](double value) {
    char buffer[32];
    return std::string(
        buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  };
  const bool uniform = known.kind == Kind::kUniform;
  const bool one = known.kind == Kind::kConstant || (uniform && a_ == -b_) ||
                   (!uniform && b_ == 0);
  return std::string(known.text) + "(" +
         (one ? digits(uniform ? b_ : a_) : digits(a_) + "," + digits(b_)) +
         ")";
}

}  // namespace elasticdl::internal
