// Optimizer specs: the table of names, arguments, defaults and ranges, and the
// text form.
#include "spec.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/suggest.h"

namespace elasticdl::optim {
namespace internal {

namespace {

// Whoever computes gradients clips them (GlobalClipNorm): an optimizer may see
// only a part of them.
std::vector<Entry> WithClipping(std::vector<Entry> entries) {
  for (Entry& entry : entries) {
    entry.arguments.push_back({"global_clipnorm", 0, Range::kNonNegative});
  }
  return entries;
}

}  // namespace

const std::vector<Entry>& Table() {
  using R = Range;
  static const auto& table = *new std::vector<Entry>(WithClipping(
      {{"SGD",
        {{"lr", 0.01, R::kNonNegative},
         {"momentum", 0, R::kNonNegative},
         {"dampening", 0, R::kAny},
         {"nesterov", 0, R::kBool},
         {"weight_decay", 0, R::kNonNegative}}},
       {"Adam",
        {{"lr", 1e-3, R::kNonNegative},
         {"beta1", 0.9, R::kFraction},
         {"beta2", 0.999, R::kFraction},
         {"epsilon", 1e-8, R::kNonNegative},
         {"amsgrad", 0, R::kBool},
         {"weight_decay", 0, R::kNonNegative}}},
       {"AdamW",
        {{"lr", 1e-3, R::kNonNegative},
         {"beta1", 0.9, R::kFraction},
         {"beta2", 0.999, R::kFraction},
         {"epsilon", 1e-8, R::kNonNegative},
         {"amsgrad", 0, R::kBool},
         {"weight_decay", 1e-2, R::kNonNegative}}},
       {"Adagrad",
        {{"lr", 0.01, R::kNonNegative},
         {"lr_decay", 0, R::kNonNegative},
         {"epsilon", 1e-10, R::kNonNegative},
         {"initial_accumulator_value", 0, R::kNonNegative},
         {"weight_decay", 0, R::kNonNegative}}},
       {"RMSprop",
        {{"lr", 0.01, R::kNonNegative},
         {"alpha", 0.99, R::kFraction},
         {"epsilon", 1e-8, R::kNonNegative},
         {"momentum", 0, R::kNonNegative},
         {"centered", 0, R::kBool},
         {"weight_decay", 0, R::kNonNegative}}},
       {"Adadelta",
        {{"lr", 1, R::kNonNegative},
         {"rho", 0.9, R::kFraction},
         {"epsilon", 1e-6, R::kNonNegative},
         {"weight_decay", 0, R::kNonNegative}}},
       {"Adamax",
        {{"lr", 2e-3, R::kNonNegative},
         {"beta1", 0.9, R::kFraction},
         {"beta2", 0.999, R::kFraction},
         {"epsilon", 1e-8, R::kNonNegative},
         {"weight_decay", 0, R::kNonNegative}}},
       {"Nadam",
        {{"lr", 2e-3, R::kNonNegative},
         {"beta1", 0.9, R::kFraction},
         {"beta2", 0.999, R::kFraction},
         {"epsilon", 1e-8, R::kNonNegative},
         {"momentum_decay", 4e-3, R::kNonNegative},
         {"weight_decay", 0, R::kNonNegative}}},
       {"Ftrl",
        {{"lr", 1e-3, R::kNonNegative},
         {"learning_rate_power", -0.5, R::kNonPositive},
         {"initial_accumulator_value", 0.1, R::kNonNegative},
         {"l1_regularization_strength", 0, R::kNonNegative},
         {"l2_regularization_strength", 0, R::kNonNegative},
         {"l2_shrinkage_regularization_strength", 0, R::kNonNegative},
         {"beta", 0, R::kNonNegative}}}}));
  return table;
}

namespace {

// Other spellings → name in the table. Used if the optimizer has the name in
// the table.
struct Alias {
  const char* other;
  const char* name;
};
constexpr Alias kAliases[] = {
    {"learning_rate", "lr"},
    {"beta_1", "beta1"},
    {"beta_2", "beta2"},
    {"eps", "epsilon"},
    {"rho", "alpha"},
    {"alpha", "rho"},
    {"decay", "alpha"},
    {"schedule_decay", "momentum_decay"},
    {"use_nesterov", "nesterov"},
    {"l1", "l1_regularization_strength"},
    {"l2", "l2_regularization_strength"},
    {"l2_shrinkage", "l2_shrinkage_regularization_strength"},
};

// "; did you mean X?", or the list of known names if none is similar.
std::string Suggest(absl::string_view given,
                    const std::vector<std::string>& known) {
  const std::string nearest = Nearest(given, known);
  if (!nearest.empty()) return absl::StrCat("; did you mean ", nearest, "?");
  return absl::StrCat("; known: ", absl::StrJoin(known, ", "));
}

const Argument* FindArgument(const Entry& entry, absl::string_view name) {
  for (const Argument& argument : entry.arguments) {
    if (name == argument.name) return &argument;
  }
  return nullptr;
}

const Argument* FindWithAlias(const Entry& entry, absl::string_view given) {
  const std::string name = absl::AsciiStrToLower(given);
  if (const Argument* found = FindArgument(entry, name)) return found;
  for (const Alias& alias : kAliases) {
    if (name == alias.other) {
      if (const Argument* found = FindArgument(entry, alias.name)) {
        return found;
      }
    }
  }
  return nullptr;
}

absl::StatusOr<const Entry*> FindEntry(absl::string_view given) {
  // Also accept "torch.optim.Adam" and "keras.optimizers.Adam".
  const size_t dot = given.rfind('.');
  const absl::string_view type =
      dot == absl::string_view::npos ? given : given.substr(dot + 1);
  std::vector<std::string> known;
  for (const Entry& entry : Table()) {
    if (absl::EqualsIgnoreCase(type, entry.type)) return &entry;
    known.push_back(entry.type);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "optimizer '", type, "': unknown optimizer", Suggest(type, known)));
}

const char* Violation(const Argument& argument, double value) {
  if (!std::isfinite(value)) return "must be finite";
  switch (argument.range) {
    case Range::kAny:
      return nullptr;
    case Range::kNonNegative:
      return value >= 0 ? nullptr : "must not be negative";
    case Range::kFraction:
      return value >= 0 && value < 1 ? nullptr : "must be in [0, 1)";
    case Range::kBool:
      return value == 0 || value == 1 ? nullptr : "must be True or False";
    case Range::kNonPositive:
      return value <= 0 ? nullptr : "must not be positive";
  }
  return "has no range";
}

absl::Status CheckTogether(const OptimizerSpec& spec) {
  const std::map<std::string, double> args = WithDefaults(spec);
  if (spec.type == "SGD" && args.at("nesterov") != 0 &&
      (args.at("momentum") == 0 || args.at("dampening") != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer '", spec.ToString(),
                     "': nesterov needs momentum above 0 and no dampening"));
  }
  return absl::OkStatus();
}

std::string FormatNumber(double value) {
  char text[32];
  const std::to_chars_result end =
      std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

absl::StatusOr<double> ParseValue(absl::string_view text) {
  if (absl::EqualsIgnoreCase(text, "true")) return 1.0;
  if (absl::EqualsIgnoreCase(text, "false")) return 0.0;
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number"));
  }
  return value;
}

}  // namespace

std::map<std::string, double> WithDefaults(const OptimizerSpec& canonical) {
  std::map<std::string, double> args = canonical.args;
  for (const Entry& entry : Table()) {
    if (canonical.type != entry.type) continue;
    for (const Argument& argument : entry.arguments) {
      args.emplace(argument.name, argument.default_value);
    }
  }
  return args;
}

}  // namespace internal

absl::StatusOr<OptimizerSpec> OptimizerSpec::Canonical() const {
  ELASTICDL_ASSIGN_OR_RETURN(const internal::Entry* entry,
                             internal::FindEntry(type));
  OptimizerSpec result;
  result.type = entry->type;
  for (const auto& [name, value] : args) {
    const internal::Argument* argument = internal::FindWithAlias(*entry, name);
    if (argument == nullptr) {
      std::vector<std::string> known;
      for (const internal::Argument& a : entry->arguments) {
        known.push_back(a.name);
      }
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer '", result.type, "': unknown argument '",
                       name, "'", internal::Suggest(name, known)));
    }
    if (const char* violation = internal::Violation(*argument, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer '", result.type, "': ", name, "=",
                       internal::FormatNumber(value), " ", violation));
    }
    if (!result.args.emplace(argument->name, value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer '", result.type, "': ", argument->name,
                       " is given twice (once as '", name, "')"));
    }
  }
  ELASTICDL_RETURN_IF_ERROR(internal::CheckTogether(result));
  return result;
}

absl::StatusOr<OptimizerSpec> OptimizerSpec::Parse(absl::string_view text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  OptimizerSpec spec;
  const size_t open = rest.find('(');
  spec.type = std::string(absl::StripAsciiWhitespace(rest.substr(0, open)));
  if (open == absl::string_view::npos) return spec.Canonical();
  rest.remove_prefix(open + 1);
  if (!absl::ConsumeSuffix(&rest, ")")) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer '", text, "': ')' is missing at the end"));
  }
  for (absl::string_view part : absl::StrSplit(rest, absl::ByAnyChar(",;"))) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(pair.first));
    const absl::StatusOr<double> value =
        internal::ParseValue(absl::StripAsciiWhitespace(pair.second));
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer '", text, "': argument '", part,
                       "' is not name=value: ", value.status().message()));
    }
    if (!spec.args.emplace(name, *value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer '", text, "': ", name, " is given twice"));
    }
  }
  return spec.Canonical();
}

std::string OptimizerSpec::ToString() const {
  if (args.empty()) return type;
  return absl::StrCat(
      type, "(",
      absl::StrJoin(args, ",",
                    [](std::string* out, const auto& argument) {
                      absl::StrAppend(out, argument.first, "=",
                                      internal::FormatNumber(argument.second));
                    }),
      ")");
}

namespace {
// Omits arguments that have their default, so that ToString() is short.
OptimizerSpec Make(const char* type, std::map<std::string, double> args) {
  for (const internal::Entry& entry : internal::Table()) {
    if (absl::string_view(entry.type) != type) continue;
    for (const internal::Argument& argument : entry.arguments) {
      const auto found = args.find(argument.name);
      if (found != args.end() && found->first != "lr" &&
          found->second == argument.default_value) {
        args.erase(found);
      }
    }
  }
  return OptimizerSpec{type, std::move(args)};
}
}  // namespace

OptimizerSpec Sgd(double lr, double momentum, bool nesterov,
                  double weight_decay) {
  return Make("SGD", {{"lr", lr},
                      {"momentum", momentum},
                      {"nesterov", nesterov ? 1.0 : 0.0},
                      {"weight_decay", weight_decay}});
}

OptimizerSpec Adam(double lr, double beta1, double beta2, double epsilon,
                   bool amsgrad) {
  return Make("Adam", {{"lr", lr},
                       {"beta1", beta1},
                       {"beta2", beta2},
                       {"epsilon", epsilon},
                       {"amsgrad", amsgrad ? 1.0 : 0.0}});
}

OptimizerSpec AdamW(double lr, double weight_decay) {
  return Make("AdamW", {{"lr", lr}, {"weight_decay", weight_decay}});
}

OptimizerSpec Adagrad(double lr, double epsilon) {
  return Make("Adagrad", {{"lr", lr}, {"epsilon", epsilon}});
}

OptimizerSpec RmsProp(double lr, double alpha, double epsilon,
                      double momentum) {
  return Make("RMSprop", {{"lr", lr},
                          {"alpha", alpha},
                          {"epsilon", epsilon},
                          {"momentum", momentum}});
}

}  // namespace elasticdl::optim
