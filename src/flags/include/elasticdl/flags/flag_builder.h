// Writes a FlagInfo in one expression: Info("Cluster", "help").Min(1).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/flags/flag_set.h"

namespace elasticdl::flags {

// Thread-compatible.
class Info {
 public:
  Info(std::string group, std::string help) {
    info_.group = std::move(group);
    info_.help = std::move(help);
  }
  Info& Value(std::string name) {
    info_.value_name = std::move(name);
    return *this;
  }
  Info& Optional() {
    info_.value_optional = true;
    return *this;
  }
  Info& Min(double value) {
    info_.min = value;
    return *this;
  }
  Info& Max(double value) {
    info_.max = value;
    return *this;
  }
  Info& Choices(std::vector<std::string> choices) {
    info_.choices = std::move(choices);
    return *this;
  }
  Info& Old(std::vector<std::string> names) {
    info_.old_names = std::move(names);
    return *this;
  }
  Info& Alias(std::vector<std::string> names) {
    info_.aliases = std::move(names);
    return *this;
  }
  Info& Required(bool required = true) {
    info_.required = required;
    return *this;
  }
  Info& Check(std::function<absl::Status(const std::string&)> check) {
    info_.check = std::move(check);
    return *this;
  }
  // Accepts what `parse` (text → StatusOr) accepts.
  template <typename Parse>
  Info& Grammar(Parse parse) {
    return Check(
        [parse](const std::string& text) { return parse(text).status(); });
  }
  Info& Hidden() {
    info_.hidden = true;
    return *this;
  }
  Info& Hint(std::string hint) {
    info_.hint = std::move(hint);
    return *this;
  }
  operator FlagInfo() const { return info_; }  // NOLINT: that is its purpose

 private:
  FlagInfo info_;
};

}  // namespace elasticdl::flags
