// The generated source around a model file.
//
// A function that the file may lack is called by its qualified name ::f.
// Lookup finds the file's own f; only if there is none does it follow the
// using-directive to the fallback, whose result type Missing is seen at compile
// time. (A function in an anonymous namespace is also reached by a directive:
// then both are candidates and the fallback's ellipsis loses.) So a missing
// function is a null entry in the table, not a page of compiler errors.
#include "shim.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

namespace elasticdl::model {
namespace {

constexpr char kFallback[] =
    "template <int = 0>\nelasticdl::plugin::Missing $0(...);\n";

constexpr char kFunction[] = R"(struct $0 {
  template <typename... Args>
  auto operator()(Args&&... args) const
      -> decltype(::$1(std::forward<Args>(args)...)) {
    return ::$1(std::forward<Args>(args)...);
  }
};
)";

constexpr char kClass[] = R"(struct $0 {
  template <typename... Args, typename = std::enable_if_t<
                                  std::is_constructible_v<::$1, Args...>>>
  auto operator()(Args&&... args) const {
    return elasticdl::plugin::Construct<::$1>(args...);
  }
};
)";

constexpr char kTable[] = R"(struct Functions {
  using Model = ModelFunction;
  using Loss = LossFunction;
  using Optimizer = OptimizerFunction;
  using Feed = FeedFunction;
  using Metrics = MetricsFunction;
  using Callbacks = CallbacksFunction;
  using Reader = ReaderFunction;
  using Processor = $0;
};
}  // namespace elasticdl_shim
extern "C" __attribute__((visibility("default")))
const elasticdl::plugin::Table* elasticdl_model_table() {
  static const elasticdl::plugin::Table table =
      elasticdl::plugin::MakeTable<elasticdl_shim::Functions>("$1");
  return &table;
}
)";

}  // namespace

std::string ShimSource(const ShimNames& names,
                       const std::vector<std::string>& files,
                       const std::string& elasticdl_version) {
  std::set<std::string> functions = {names.feed,      names.loss,
                                     names.optimizer, names.eval_metrics_fn,
                                     names.callbacks, names.custom_data_reader};
  if (!names.model_is_class) functions.insert(names.model);

  std::string text = "#include <elasticdl/model/plugin.h>\n";
  for (const std::string& file : files) {
    absl::StrAppend(&text, "#include \"", file, "\"\n");
  }
  absl::StrAppend(&text, "namespace elasticdl_fallback {\n");
  for (const std::string& function : functions) {
    absl::SubstituteAndAppend(&text, kFallback, function);
  }
  absl::StrAppend(&text,
                  "}  // namespace elasticdl_fallback\n"
                  "using namespace elasticdl_fallback;\n"
                  "namespace elasticdl_shim {\n");
  absl::SubstituteAndAppend(&text, names.model_is_class ? kClass : kFunction,
                            "ModelFunction", names.model);
  absl::SubstituteAndAppend(&text, kFunction, "LossFunction", names.loss);
  absl::SubstituteAndAppend(&text, kFunction, "OptimizerFunction",
                            names.optimizer);
  absl::SubstituteAndAppend(&text, kFunction, "FeedFunction", names.feed);
  absl::SubstituteAndAppend(&text, kFunction, "MetricsFunction",
                            names.eval_metrics_fn);
  absl::SubstituteAndAppend(&text, kFunction, "CallbacksFunction",
                            names.callbacks);
  absl::SubstituteAndAppend(&text, kFunction, "ReaderFunction",
                            names.custom_data_reader);
  absl::SubstituteAndAppend(&text, kTable,
                            names.processor.empty()
                                ? "elasticdl::plugin::Missing"
                                : absl::StrCat("::", names.processor),
                            elasticdl_version);
  return text;
}

}  // namespace elasticdl::model
