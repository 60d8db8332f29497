// The part of deferred_weight.h that libtorch calls: operations on deferred
// weights and tables, and the making of tensors inside a DeferScope. All of it
// is boxed, so that it does not depend on libtorch's version how the arguments
// of an operation are passed.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "deferred_weight.h"
#include "reserved_tensor.h"

namespace elasticdl::model {
namespace {

using torch::Tensor;
using torch::jit::IValue;
using torch::jit::Stack;
using Values = DeferredWeight::Values;

// libtorch calls what is registered for this key before its own autograd, and
// registers nothing itself. It belongs to the tensors.
constexpr auto kWeight = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void DeleteWeight(void* context) {
  delete static_cast<DeferredWeight*>(context);
}

Tensor MakeDeferred(c10::Storage storage, torch::IntArrayRef sizes,
                    int64_t offset) {
  return FloatsIn(std::move(storage),
                  c10::DispatchKeySet({kWeight, c10::DispatchKey::CPU}), sizes,
                  offset);
}

// ---- in a DeferScope ----

// Takes its memory away, if it is all of what Reserve has made.
void Defer(const Tensor& tensor) {
  if (tensor.key_set().has(kWeight) || !tensor.has_storage() ||
      tensor.dim() != 2 || !tensor.is_contiguous()) {
    return;
  }
  const ReservedMemory* memory = ReservedIn(tensor.storage());
  if (memory == nullptr || tensor.nbytes() != memory->bytes) return;
  auto weight =
      std::make_unique<DeferredWeight>(tensor.size(0), tensor.size(1));
  const Tensor deferred =
      MakeDeferred(MakeStorage(0, nullptr, weight.release(), &DeleteWeight),
                   tensor.sizes().vec(), 0);
  tensor.unsafeGetTensorImpl()->shallow_copy_from(deferred.getIntrusivePtr());
}

// Weights are matrices.
bool DeferOperation(const c10::OperatorHandle& op, Stack* stack,
                    int64_t min_bytes) {
  const size_t count = op.schema().arguments().size();
  const absl::string_view name = op.schema().name();
  if (name == "aten::empty" && op.schema().overload_name() == "memory_format") {
    const auto args = torch::jit::last(*stack, count);
    if (!args[0].isIntList() || args[0].toIntVector().size() != 2) return false;
    Tensor tensor = Reserve(args, min_bytes);
    if (!tensor.defined()) return false;
    torch::jit::drop(*stack, count);
    torch::jit::push(*stack, std::move(tensor));
    return true;
  }
  if (name == "aten::normal_") {
    Defer(torch::jit::peek(*stack, 0, count).toTensor());
  }
  return false;
}

// ---- on deferred weights and tables ----

// The values that an initializing operation makes; nothing if it is another
// one, or has random numbers of its own.
std::optional<Values> ValuesOf(const c10::FunctionSchema& schema,
                               torch::ArrayRef<IValue> args) {
  const absl::string_view name = schema.name();
  if (name == "aten::zero_") return Values{Values::Kind::kConstant, 0, 0};
  if (name == "aten::fill_" && schema.overload_name() == "Scalar") {
    return Values{Values::Kind::kConstant, args[1].toScalar().toDouble(), 0};
  }
  const bool normal = name == "aten::normal_";
  if ((normal || name == "aten::uniform_") && args[3].isNone()) {
    const double first = args[1].toDouble();
    const double second = args[2].toDouble();
    return normal ? Values{Values::Kind::kNormal, second, first}
                  : Values{Values::Kind::kUniform, first, second};
  }
  return std::nullopt;
}

// Row `index`, for filling it; undefined if it is none.
Tensor SelectRow(const DeferredWeight& weight, const Tensor& tensor,
                 int64_t dimension, int64_t index) {
  if (index < 0) index += weight.rows();
  if (tensor.dim() != 2 || (dimension != 0 && dimension != -2) || index < 0 ||
      index >= weight.rows()) {
    return {};
  }
  return MakeDeferred(tensor.storage(), {weight.dim()}, index * weight.dim());
}

Tensor Detach(const Tensor& tensor) {
  return Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      tensor.unsafeGetTensorImpl()->version_counter(),
      /*allow_tensor_metadata_change=*/true));
}

// What a deferred weight can do; undefined if it needs its values.
Tensor OnDeferred(DeferredWeight& weight, const c10::FunctionSchema& schema,
                  torch::ArrayRef<IValue> args) {
  const Tensor& tensor = args[0].toTensor();
  if (const auto values = ValuesOf(schema, args); values.has_value()) {
    return weight.Record(tensor, *values) ? tensor : Tensor();
  }
  if (schema.name() == "aten::select" && schema.overload_name() == "int") {
    return SelectRow(weight, tensor, args[1].toInt(), args[2].toInt());
  }
  return schema.name() == "aten::detach" ? Detach(tensor) : Tensor();
}

DeferredWeight::BagOptions BagOptions(const DeferredWeight& weight,
                                      torch::ArrayRef<IValue> args) {
  DeferredWeight::BagOptions options;
  options.offsets = args[2].toTensor();
  options.scale_grad_by_freq = args[3].toBool();
  options.mode = args[4].toInt();
  if (args[6].isTensor()) options.per_sample_weights = args[6].toTensor();
  options.include_last_offset = args[7].toBool();
  if (args.size() > 8 && !args[8].isNone()) {
    options.padding = args[8].toInt();
    if (options.padding < 0) options.padding += weight.rows();
  }
  return options;
}

// What a table can do; empty if it cannot do this.
Stack OnTable(const DeferredWeight& weight, const c10::FunctionSchema& schema,
              torch::ArrayRef<IValue> args) {
  const absl::string_view name = schema.name();
  if (name == "aten::detach") return {Detach(args[0].toTensor())};
  if (name == "aten::embedding" && schema.overload_name().empty()) {
    return {weight.Embedding(args[1].toTensor(), args[2].toInt(),
                             args[3].toBool())};
  }
  if (name == "aten::embedding_bag") {
    auto [bags, numbers, sizes, largest] =
        weight.Bags(args[1].toTensor(), BagOptions(weight, args));
    return {bags, numbers, sizes, largest};
  }
  return {};
}

void MakeAll(const IValue& value, const c10::FunctionSchema& schema) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    const DeferredWeight* weight = DeferredWeight::Of(tensor);
    if (weight == nullptr) return;
    TORCH_CHECK(!weight->attached(), "'", weight->table().name,
                "' lives on the parameter servers, where ", schema.name(),
                " cannot use it; --embedding_layer_limit=0 keeps it on the "
                "workers");
    DeferredWeight::Make(tensor);
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef()) MakeAll(element, schema);
  }
}

// Every operation that has a deferred weight or a table among its arguments.
void OnWeight(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const auto args = torch::jit::last(*stack, count);
  DeferredWeight* weight =
      args[0].isTensor() ? DeferredWeight::Of(args[0].toTensor()) : nullptr;
  Stack results;
  if (weight != nullptr && weight->attached()) {
    results = OnTable(*weight, schema, args);
  } else if (weight != nullptr) {
    Tensor tensor = OnDeferred(*weight, schema, args);
    if (tensor.defined()) results.emplace_back(std::move(tensor));
  }
  if (results.empty()) {
    for (const IValue& arg : args) MakeAll(arg, schema);
    op.callBoxed(stack);
    return;
  }
  torch::jit::drop(*stack, count);
  for (IValue& result : results) {
    torch::jit::push(*stack, std::move(result));
  }
}

// Takes all operations with this key. Must not be destroyed: that would undo
// it.
struct WeightFallback {
  WeightFallback() {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnWeight>());
  }
  torch::Library library{torch::Library::IMPL, "_", kWeight, __FILE__,
                         __LINE__};
};

// With the first scope: other jobs use libtorch as it is.
OperationScope::Handler DeferHandler(int64_t min_bytes) {
  static const auto* const fallback = new WeightFallback();
  static_cast<void>(fallback);
  return [min_bytes](const c10::OperatorHandle& op, Stack* stack) {
    return DeferOperation(op, stack, min_bytes);
  };
}

}  // namespace

DeferScope::DeferScope(int64_t min_bytes) : scope_(DeferHandler(min_bytes)) {}

DeferredWeight* DeferredWeight::Of(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kWeight)) return nullptr;
  return tensor.storage().data_ptr().cast_context<DeferredWeight>(
      &DeleteWeight);
}

}  // namespace elasticdl::model
