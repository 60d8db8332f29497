// `--model_params` for model files: "k=v;k=v" with typed access. No libtorch.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace elasticdl {

// Thread-compatible. Functions throw std::invalid_argument, because they are
// called from model files.
class Params {
 public:
  Params() = default;
  explicit Params(std::map<std::string, std::string> values)
      : values_(std::move(values)) {}

  bool Has(const std::string& key) const { return values_.count(key) != 0; }
  const std::map<std::string, std::string>& values() const { return values_; }

  // The value of `key`, or `fallback` if it is not given. The type of the
  // fallback decides how the text is parsed; throws if it does not parse.
  std::string Get(const std::string& key, const char* fallback) const {
    const auto it = values_.find(key);
    return it == values_.end() ? fallback : it->second;
  }
  std::string Get(const std::string& key, const std::string& fallback) const {
    return Get(key, fallback.c_str());
  }
  int64_t Get(const std::string& key, int64_t fallback) const {
    const auto it = values_.find(key);
    if (it == values_.end()) return fallback;
    char* end = nullptr;
    const int64_t value = std::strtoll(it->second.c_str(), &end, 10);
    Check(it->first, it->second, end, "an integer");
    return value;
  }
  int Get(const std::string& key, int fallback) const {
    return static_cast<int>(Get(key, static_cast<int64_t>(fallback)));
  }
  double Get(const std::string& key, double fallback) const {
    const auto it = values_.find(key);
    if (it == values_.end()) return fallback;
    char* end = nullptr;
    const double value = std::strtod(it->second.c_str(), &end);
    Check(it->first, it->second, end, "a number");
    return value;
  }
  // True is true, True, yes or 1; false is false, False, no or 0.
  bool Get(const std::string& key, bool fallback) const {
    const auto it = values_.find(key);
    if (it == values_.end()) return fallback;
    const std::string& v = it->second;
    if (v == "true" || v == "True" || v == "yes" || v == "1") return true;
    if (v == "false" || v == "False" || v == "no" || v == "0") return false;
    throw std::invalid_argument("--model_params: " + key + "='" + v +
                                "' is not a boolean");
  }

 private:
  static void Check(const std::string& key, const std::string& text,
                    const char* end, const char* what) {
    if (!text.empty() && end == text.c_str() + text.size()) return;
    throw std::invalid_argument("--model_params: " + key + "='" + text +
                                "' is not " + what);
  }

  std::map<std::string, std::string> values_;
};

}  // namespace elasticdl
