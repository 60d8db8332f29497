#include "late_values.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"
#include "reserved_tensor.h"

namespace elasticdl::model {
namespace {

using Fill = LateFill;

// Fewer numbers, or those that are not one after the other, libtorch makes in
// another way.
constexpr int64_t kLeastNormal = 16;
// libtorch makes this many at a time; a rest at the end is made from new
// numbers.
constexpr int64_t kNormalBlock = 16;
// libtorch refuses arguments that a float cannot be.
constexpr double kMostArgument = 1e30;

bool IsUsual(double argument) { return std::abs(argument) <= kMostArgument; }

// Operations that need no values of their tensors: views, and what is about
// gradients.
bool NeedsNoValues(absl::string_view name) {
  static const auto& names = *new std::set<absl::string_view>{
      "aten::alias",   "aten::as_strided", "aten::chunk",
      "aten::detach",  "aten::expand",     "aten::narrow",
      "aten::permute", "aten::select",     "aten::slice",
      "aten::split",   "aten::squeeze",    "aten::t",
      "aten::unbind",  "aten::unsqueeze",  "aten::requires_grad_",
      "aten::view",    "aten::transpose"};
  return names.count(name) > 0;
}

// What an operation makes of its first argument; nothing if it is another one,
// if it has random numbers of its own, or if it may fail.
std::optional<Fill> FillOf(const c10::FunctionSchema& schema,
                           torch::ArrayRef<torch::jit::IValue> args) {
  const absl::string_view name = schema.name();
  Fill fill;
  if (name == "aten::zero_") return fill;
  if (name == "aten::fill_" && schema.overload_name() == "Scalar") {
    const auto value = args[1].toScalar();
    if (value.isComplex()) return std::nullopt;
    fill.a = value.toDouble();
    return IsUsual(fill.a) ? std::make_optional(fill) : std::nullopt;
  }
  const bool normal = name == "aten::normal_";
  if ((!normal && name != "aten::uniform_") || !args[3].isNone()) {
    return std::nullopt;
  }
  fill.kind = normal ? Fill::Kind::kNormal : Fill::Kind::kUniform;
  fill.a = args[1].toDouble();
  fill.b = args[2].toDouble();
  const double least = normal ? 0 : fill.a;
  if (!IsUsual(fill.a) || !IsUsual(fill.b) || fill.b < least) {
    return std::nullopt;
  }
  return fill;
}

// The random numbers that it takes.
int64_t NumbersOf(const Fill& fill) {
  switch (fill.kind) {
    case Fill::Kind::kConstant:
      return 0;
    case Fill::Kind::kUniform:
      return fill.count;
    case Fill::Kind::kNormal:
      break;
  }
  return fill.count + (fill.count % kNormalBlock == 0 ? 0 : kNormalBlock);
}

// The next 624 numbers. Loops that the compiler can do eight at a time; those
// of libtorch it cannot.
void Twist(std::array<uint32_t, at::MERSENNE_STATE_N>& state) {
  constexpr size_t kSize = at::MERSENNE_STATE_N;
  constexpr size_t kAhead = at::MERSENNE_STATE_M;
  const auto twist = [](uint32_t u, uint32_t v) {
    return (((u & at::UMASK) | (v & at::LMASK)) >> 1) ^
           (-(v & 1) & at::MATRIX_A);
  };
  for (size_t i = 0; i < kSize - kAhead; ++i) {
    state[i] = state[i + kAhead] ^ twist(state[i], state[i + 1]);
  }
  for (size_t i = kSize - kAhead; i < kSize - 1; ++i) {
    state[i] = state[i + kAhead - kSize] ^ twist(state[i], state[i + 1]);
  }
  state[kSize - 1] = state[kAhead - 1] ^ twist(state[kSize - 1], state[0]);
}

// `numbers`: all of the memory, in one dimension.
void Replay(const std::vector<Fill>& fills, const torch::Tensor& numbers) {
  const torch::NoGradGuard no_grad;
  for (const Fill& fill : fills) {
    torch::Tensor part = numbers.narrow(0, fill.begin, fill.count);
    if (fill.kind == Fill::Kind::kConstant) {
      part.fill_(fill.a);
      continue;
    }
    at::Generator generator = at::detail::createCPUGenerator();
    at::mt19937 engine;
    engine.set_data(fill.random);
    generator.get<at::CPUGeneratorImpl>()->set_engine(engine);
    if (fill.kind == Fill::Kind::kUniform) {
      part.uniform_(fill.a, fill.b, generator);
    } else {
      part.normal_(fill.a, fill.b, generator);
    }
  }
}

bool IsWhole(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kFloat && tensor.is_contiguous() &&
         tensor.storage_offset() == 0 &&
         tensor.nbytes() == tensor.storage().nbytes();
}

}  // namespace

void SkipNumbers(at::mt19937_data_pod& random, int64_t count) {
  while (count > 0) {
    // The last one of these begins with the next 624.
    const int64_t step = std::min<int64_t>(count, random.left_);
    count -= step;
    if (step < random.left_) {
      random.left_ -= static_cast<int>(step);
      random.next_ += static_cast<uint32_t>(step);
      return;
    }
    Twist(random.state_);
    random.left_ = at::MERSENNE_STATE_N;
    random.next_ = 1;
  }
}

// ---- LateValues ----

int64_t LateValues::bytes() const {
  int64_t bytes = 0;
  for (const auto& [parameter, fills] : parameters_) {
    bytes += static_cast<int64_t>(parameter.nbytes());
  }
  return bytes;
}

void LateValues::Make() {
  const torch::NoGradGuard no_grad;
  for (const auto& [parameter, fills] : parameters_) {
    torch::Tensor target = parameter.detach();
    if (target.is_cpu() && target.is_contiguous()) {
      Replay(fills, target.view({-1}));
      continue;
    }
    const torch::Tensor made =
        torch::zeros(target.sizes(), torch::TensorOptions(torch::kFloat));
    Replay(fills, made.view({-1}));
    target.copy_(made);
  }
  parameters_.clear();
}

// ---- LateScope ----

LateScope::LateScope(int64_t min_bytes) : min_bytes_(min_bytes) {
  operations_.emplace(
      [this](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
        return Handle(op, stack);
      });
}

bool LateScope::Handle(const c10::OperatorHandle& op,
                       torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  if (schema.name() == "aten::empty" &&
      schema.overload_name() == "memory_format") {
    return Reserved(stack, count);
  }
  if (entries_.empty()) return false;
  const auto args = torch::jit::last(*stack, count);
  if (Note(schema, args)) {
    // These return what they are given first.
    torch::jit::drop(*stack, count - 1);
    return true;
  }
  if (NeedsNoValues(schema.name())) return false;
  // This one lets go of what its first argument was.
  const size_t first = schema.name() == "aten::set_data" ? 1 : 0;
  for (size_t i = first; i < args.size(); ++i) MakeAll(args[i]);
  return false;
}

bool LateScope::Reserved(torch::jit::Stack* stack, size_t count) {
  torch::Tensor tensor = Reserve(torch::jit::last(*stack, count), min_bytes_);
  if (!tensor.defined()) return false;
  for (auto it = entries_.begin(); it != entries_.end();) {
    // Nobody else has it any more.
    const bool gone = it->second.storage.use_count() == 1;
    it = gone ? entries_.erase(it) : std::next(it);
  }
  Entry entry;
  entry.storage = tensor.storage();
  entries_.emplace(entry.storage.unsafeGetStorageImpl(), std::move(entry));
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, std::move(tensor));
  return true;
}

LateScope::Entry* LateScope::Find(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto found = entries_.find(tensor.storage().unsafeGetStorageImpl());
  return found == entries_.end() ? nullptr : &found->second;
}

bool LateScope::Note(const c10::FunctionSchema& schema,
                     torch::ArrayRef<torch::jit::IValue> args) {
  if (args.empty() || !args[0].isTensor()) return false;
  const torch::Tensor& tensor = args[0].toTensor();
  Entry* const entry = Find(tensor);
  if (entry == nullptr || entry->made) return false;
  // Each note has the state of the random numbers: so many of them would take
  // more memory than the values.
  constexpr size_t kMostFills = 64;
  if (entry->fills.size() >= kMostFills) return false;
  // libtorch refuses to write what needs a gradient.
  const bool refused = torch::GradMode::is_enabled() && tensor.requires_grad();
  if (refused || tensor.scalar_type() != torch::kFloat ||
      !tensor.is_contiguous() || tensor.numel() == 0) {
    return false;
  }
  std::optional<Fill> fill = FillOf(schema, args);
  if (!fill.has_value()) return false;
  fill->begin = tensor.storage_offset();
  fill->count = tensor.numel();
  if (fill->kind == Fill::Kind::kNormal && fill->count < kLeastNormal) {
    return false;
  }
  if (fill->kind != Fill::Kind::kConstant) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    auto* const random = generator.get<at::CPUGeneratorImpl>();
    at::mt19937 engine = random->engine();
    fill->random = engine.data();
    at::mt19937_data_pod after = fill->random;
    SkipNumbers(after, NumbersOf(*fill));
    engine.set_data(after);
    random->set_engine(engine);
  }
  entry->fills.push_back(*fill);
  return true;
}

void LateScope::MakeAll(const torch::jit::IValue& value) {
  if (value.isTensor()) {
    Entry* const entry = Find(value.toTensor());
    if (entry != nullptr) Make(*entry);
  } else if (value.isList()) {
    for (const torch::jit::IValue& element : value.toListRef()) {
      MakeAll(element);
    }
  }
}

void LateScope::Make(Entry& entry) {
  if (entry.made) return;
  entry.made = true;
  const auto count =
      static_cast<int64_t>(entry.storage.nbytes() / sizeof(float));
  Replay(entry.fills,
         FloatsIn(entry.storage, c10::DispatchKeySet(c10::DispatchKey::CPU),
                  {count}, 0));
  entry.fills.clear();
}

std::optional<LateValues> LateScope::Finish(const torch::nn::Module& network) {
  operations_.reset();
  // By their storage. A tensor that is there twice is named twice.
  std::map<const c10::StorageImpl*, std::vector<torch::Tensor>> named;
  const auto add = [&](const torch::Tensor& tensor) {
    if (Find(tensor) == nullptr) return;
    named[tensor.storage().unsafeGetStorageImpl()].push_back(tensor);
  };
  for (const auto& item : network.named_parameters()) add(item.value());
  std::set<const c10::StorageImpl*> buffers;
  for (const auto& item : network.named_buffers()) {
    if (Find(item.value()) == nullptr) continue;
    buffers.insert(item.value().storage().unsafeGetStorageImpl());
  }
  LateValues values;
  for (auto& [storage, entry] : entries_) {
    if (entry.fills.empty() || entry.storage.use_count() == 1) continue;
    if (!IsUntouched(*ReservedIn(entry.storage))) return std::nullopt;
    const std::vector<torch::Tensor>& tensors = named[storage];
    // One that this scope has, and one that the parameter has.
    const bool only = entry.storage.use_count() == 2 && tensors.size() == 1 &&
                      buffers.count(storage) == 0;
    if (only && IsWhole(tensors[0])) {
      values.Add(tensors[0], std::move(entry.fills));
    } else {
      Make(entry);
    }
  }
  entries_.clear();
  return values;
}

}  // namespace elasticdl::model
