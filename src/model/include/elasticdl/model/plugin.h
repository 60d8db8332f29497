// The boundary between the worker and a compiled model file: a versioned table
// of C functions, and the templates with which the generated shim (shim.h)
// fills it from the user's functions. Nothing throws across it; our types cross
// it as opaque pointers. Header-only, because it is compiled into the model's
// .so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "elasticdl/model.h"
#include "elasticdl/model/internal/sharded_layers.h"

namespace elasticdl::plugin {

// "ELDM"
inline constexpr uint32_t kMagic = 0x4d444c45;
// Changes whenever Table or a type that crosses the boundary changes.
inline constexpr uint32_t kAbiVersion = 4;
// Sizes of the types that cross the boundary, in case a change of kAbiVersion
// was forgotten.
inline constexpr uint32_t kLayout =
    sizeof(Batch) * 1000003u + sizeof(Params) * 10007u +
    sizeof(OptimizerSpec) * 1009u + sizeof(Metric) * 101u + sizeof(Callback) +
    sizeof(Metadata) + sizeof(ShardedTable) * 11u;

// Result type of the fallback overload of a function that the file does not
// define.
struct Missing {};

// The user's network behind one interface. Forward may throw; the table's
// `forward` does not.
class AnyNetwork {
 public:
  virtual ~AnyNetwork() = default;
  virtual std::shared_ptr<torch::nn::Module> module() = 0;
  virtual Outputs Forward(const Features& features) = 0;
  // See model::Network.
  virtual const std::vector<ShardedTable>& tables() = 0;
  virtual void SetRowSource(RowSource* source) = 0;
};

// The same for PredictionOutputsProcessor.
class AnyProcessor {
 public:
  virtual ~AnyProcessor() = default;
  virtual void Process(const Outputs& predictions, int64_t worker_id) = 0;
};

// Every function returns true, or false with the reason in *error, a
// std::string. Comments give the types of other void pointers. A null entry
// means that the model file does not define the function.
struct Table {
  uint32_t size;
  uint32_t magic;
  uint32_t abi_version;
  uint32_t layout;
  const char* torch_version;
  const char* elasticdl_version;
  // network: std::unique_ptr<AnyNetwork>.
  bool (*create_network)(const void* params, bool sharded_embeddings,
                         void* network, void* error);
  // features, outputs: NamedTensors.
  bool (*forward)(void* network, const void* features, void* outputs,
                  void* error);
  // labels, loss: torch::Tensor.
  bool (*loss)(const void* params, const void* labels, const void* outputs,
               void* loss, void* error);
  // spec: OptimizerSpec.
  bool (*optimizer)(const void* params, void* spec, void* error);
  // records: Records; metadata: Metadata; batch: Batch.
  bool (*feed)(const void* params, const void* records, int mode,
               const void* metadata, void* batch, void* error);
  // metrics: Metrics.
  bool (*eval_metrics)(const void* params, void* metrics, void* error);
  // callbacks: Callbacks.
  bool (*callbacks)(const void* params, void* callbacks, void* error);
  // origin: std::string; reader: std::unique_ptr<data::DataReader>.
  bool (*data_reader)(const void* params, const void* origin, void* reader,
                      void* error);
  // output_dir: std::string; processor: std::unique_ptr<AnyProcessor>.
  bool (*create_processor)(const void* params, const void* output_dir,
                           void* processor, void* error);
  // Its constructor takes the output_dir.
  bool processor_takes_output_dir;
  bool (*process)(void* processor, const void* outputs, int64_t worker_id,
                  void* error);
};

// Name of the exported function `extern "C" const Table* ()`.
inline constexpr char kEntryName[] = "elasticdl_model_table";

// Calls f. Returns false with a text in *error if it throws.
template <typename F>
bool Guard(void* error, const F& f) noexcept {
  auto& text = *static_cast<std::string*>(error);
  try {
    f();
    return true;
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "an exception that is not a std::exception";
  }
  if (text.empty()) text = "an exception without text";
  return false;
}

template <typename T>
const T& In(const void* pointer) {
  return *static_cast<const T*>(pointer);
}
template <typename T>
T& Out(void* pointer) {
  return *static_cast<T*>(pointer);
}

// --- Which arguments does the user's function Fn take? ---

template <typename Fn, typename... Args>
constexpr bool Accepts() {
  if constexpr (std::is_invocable_v<Fn, Args...>) {
    return !std::is_same_v<std::invoke_result_t<Fn, Args...>, Missing>;
  } else {
    return false;
  }
}

template <typename Fn, typename... Args>
constexpr bool IsMissing() {
  if constexpr (std::is_invocable_v<Fn, Args...>) {
    return std::is_same_v<std::invoke_result_t<Fn, Args...>, Missing>;
  } else {
    return false;
  }
}

template <typename Fn, typename Tuple, size_t... I>
constexpr bool AcceptsFirst(std::index_sequence<I...>) {
  return Accepts<Fn, std::tuple_element_t<I, Tuple>...>();
}
template <typename Fn, typename Tuple, size_t... I>
constexpr bool AcceptsFirstAndParams(std::index_sequence<I...>) {
  return Accepts<Fn, std::tuple_element_t<I, Tuple>..., const Params&>();
}

// Can Fn be called with the first N arguments of Tuple, or fewer, with or
// without trailing Params?
template <typename Fn, typename Tuple, size_t N>
constexpr bool AcceptsSome() {
  using First = std::make_index_sequence<N>;
  if constexpr (AcceptsFirstAndParams<Fn, Tuple>(First()) ||
                AcceptsFirst<Fn, Tuple>(First())) {
    return true;
  } else if constexpr (N > 0) {
    return AcceptsSome<Fn, Tuple, N - 1>();
  } else {
    return false;
  }
}

template <typename Fn, typename Tuple, size_t... I>
decltype(auto) CallFirst(const Tuple& args, std::index_sequence<I...>) {
  return Fn()(std::get<I>(args)...);
}
template <typename Fn, typename Tuple, size_t... I>
decltype(auto) CallFirstAndParams(const Tuple& args, const Params& params,
                                  std::index_sequence<I...>) {
  return Fn()(std::get<I>(args)..., params);
}

// Calls Fn with as many of the arguments as it takes.
template <typename Fn, size_t N, typename Tuple>
decltype(auto) Call(const Params& params, const Tuple& args) {
  using First = std::make_index_sequence<N>;
  if constexpr (AcceptsFirstAndParams<Fn, Tuple>(First())) {
    return CallFirstAndParams<Fn>(args, params, First());
  } else if constexpr (AcceptsFirst<Fn, Tuple>(First())) {
    return CallFirst<Fn>(args, First());
  } else {
    static_assert(N > 0, "unreachable: Present checks the arguments");
    return Call<Fn, N - 1>(params, args);
  }
}

// True if the file defines the function. Does not compile if the function has
// wrong arguments.
template <typename Fn, typename... Args>
constexpr bool Present() {
  using Tuple = std::tuple<Args...>;
  constexpr bool kPresent = AcceptsSome<Fn, Tuple, sizeof...(Args)>();
  static_assert(kPresent || IsMissing<Fn, Args...>(),
                "a function of the model file takes other arguments than "
                "elasticdl/model.h says; the lines below name it");
  return kPresent;
}

template <typename Fn, typename... Args>
decltype(auto) CallWith(const Params& params, const Args&... args) {
  return Call<Fn, sizeof...(Args)>(params, std::tuple<const Args&...>(args...));
}

// --- Networks ---

template <typename T, typename = void>
struct IsHolder : std::false_type {};
template <typename T>
struct IsHolder<T, std::void_t<decltype(std::declval<T&>().ptr())>>
    : std::true_type {};

// A new T, which is a module class or a TORCH_MODULE holder.
template <typename T, typename... Args>
auto Construct(const Args&... args) {
  if constexpr (IsHolder<T>::value) {
    return T(args...).ptr();
  } else {
    return std::make_shared<T>(args...);
  }
}

// The shared_ptr to the module in the result of custom_model.
template <typename T>
auto ModuleOf(T made) {
  if constexpr (IsHolder<T>::value) {
    return made.ptr();
  } else {
    return std::shared_ptr<typename T::element_type>(std::move(made));
  }
}

template <typename M, typename = void>
struct TakesFeatures : std::false_type {};
template <typename M>
struct TakesFeatures<M, std::void_t<decltype(std::declval<M&>().forward(
                            std::declval<const Features&>()))>>
    : std::true_type {};

template <typename M>
class UserNetwork : public AnyNetwork {
 public:
  explicit UserNetwork(std::shared_ptr<M> module) : module_(std::move(module)) {
    if (module_ == nullptr) throw std::invalid_argument("it returned null");
    layers_ = internal::ShardedLayers(*module_);
  }
  std::shared_ptr<torch::nn::Module> module() override { return module_; }
  Outputs Forward(const Features& features) override {
    if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, M>) {
      return module_->forward(features.tensor());
    } else {
      static_assert(TakesFeatures<M>::value,
                    "forward of the class that custom_model returns must take "
                    "a torch::Tensor or const elasticdl::Features&");
      return module_->forward(features);
    }
  }
  const std::vector<ShardedTable>& tables() override {
    return layers_.tables();
  }
  void SetRowSource(RowSource* source) override {
    layers_.SetRowSource(source);
  }

 private:
  // Shared with libtorch, which keeps modules in shared pointers.
  const std::shared_ptr<M> module_;
  internal::ShardedLayers layers_;
};

template <typename M>
std::unique_ptr<AnyNetwork> WrapModule(std::shared_ptr<M> module) {
  return std::make_unique<UserNetwork<M>>(std::move(module));
}

template <typename P>
class UserProcessor : public AnyProcessor {
 public:
  template <typename... Args>
  explicit UserProcessor(const Args&... args) : processor_(args...) {}
  void Process(const Outputs& predictions, int64_t worker_id) override {
    processor_.process(predictions, worker_id);
  }

 private:
  P processor_;
};

// --- The table's functions, one template each ---

template <typename Fn>
bool CreateNetwork(const void* params, bool sharded_embeddings, void* network,
                   void* error) {
  return Guard(error, [&] {
    const internal::ShardingScope scope(sharded_embeddings);
    Out<std::unique_ptr<AnyNetwork>>(network) =
        WrapModule(ModuleOf(CallWith<Fn>(In<Params>(params))));
  });
}

inline bool Forward(void* network, const void* features, void* outputs,
                    void* error) {
  return Guard(error, [&] {
    Out<Outputs>(outputs) =
        static_cast<AnyNetwork*>(network)->Forward(In<Features>(features));
  });
}

template <typename Fn>
bool Loss(const void* params, const void* labels, const void* outputs,
          void* loss, void* error) {
  return Guard(error, [&] {
    Out<torch::Tensor>(loss) = CallWith<Fn>(
        In<Params>(params), In<torch::Tensor>(labels), In<Outputs>(outputs));
  });
}

template <typename Fn, typename Result>
bool Make(const void* params, void* result, void* error) {
  return Guard(error,
               [&] { Out<Result>(result) = CallWith<Fn>(In<Params>(params)); });
}

template <typename Fn>
bool Feed(const void* params, const void* records, int mode,
          const void* metadata, void* batch, void* error) {
  return Guard(error, [&] {
    Out<Batch>(batch) =
        CallWith<Fn>(In<Params>(params), In<Records>(records),
                     static_cast<Mode>(mode), In<Metadata>(metadata));
  });
}

template <typename Fn>
bool OpenReader(const void* params, const void* origin, void* reader,
                void* error) {
  return Guard(error, [&] {
    Out<std::unique_ptr<data::DataReader>>(reader) =
        CallWith<Fn>(In<Params>(params), In<std::string>(origin));
  });
}

template <typename P>
constexpr bool TakesOutputDir() {
  return std::is_constructible_v<P, const std::string&, const Params&> ||
         std::is_constructible_v<P, const std::string&>;
}

template <typename P>
bool CreateProcessor(const void* params, const void* output_dir,
                     void* processor, void* error) {
  return Guard(error, [&] {
    auto& out = Out<std::unique_ptr<AnyProcessor>>(processor);
    const auto& dir = In<std::string>(output_dir);
    if constexpr (std::is_constructible_v<P, const std::string&,
                                          const Params&>) {
      out = std::make_unique<UserProcessor<P>>(dir, In<Params>(params));
    } else if constexpr (std::is_constructible_v<P, const std::string&>) {
      out = std::make_unique<UserProcessor<P>>(dir);
    } else if constexpr (std::is_constructible_v<P, const Params&>) {
      out = std::make_unique<UserProcessor<P>>(In<Params>(params));
    } else {
      out = std::make_unique<UserProcessor<P>>();
    }
  });
}

inline bool Process(void* processor, const void* outputs, int64_t worker_id,
                    void* error) {
  return Guard(error, [&] {
    static_cast<AnyProcessor*>(processor)->Process(In<Outputs>(outputs),
                                                   worker_id);
  });
}

// The table for the types in F (see shim.cc): Model, Loss, Optimizer, Feed,
// Metrics, Callbacks, Reader are callable; Processor is a class or Missing.
template <typename F>
Table MakeTable(const char* elasticdl_version) {
  Table t = {};
  t.size = sizeof(Table);
  t.magic = kMagic;
  t.abi_version = kAbiVersion;
  t.layout = kLayout;
  t.torch_version = TORCH_VERSION;
  t.elasticdl_version = elasticdl_version;
  t.forward = &Forward;
  t.process = &Process;
  using Tensor = torch::Tensor;
  if constexpr (Present<typename F::Model>()) {
    t.create_network = &CreateNetwork<typename F::Model>;
  }
  if constexpr (Present<typename F::Loss, const Tensor&, const Outputs&>()) {
    t.loss = &Loss<typename F::Loss>;
  }
  if constexpr (Present<typename F::Optimizer>()) {
    t.optimizer = &Make<typename F::Optimizer, OptimizerSpec>;
  }
  if constexpr (Present<typename F::Feed, const Records&, const Mode&,
                        const Metadata&>()) {
    t.feed = &Feed<typename F::Feed>;
  }
  if constexpr (Present<typename F::Metrics>()) {
    t.eval_metrics = &Make<typename F::Metrics, Metrics>;
  }
  if constexpr (Present<typename F::Callbacks>()) {
    t.callbacks = &Make<typename F::Callbacks, Callbacks>;
  }
  if constexpr (Present<typename F::Reader, const std::string&>()) {
    t.data_reader = &OpenReader<typename F::Reader>;
  }
  if constexpr (!std::is_same_v<typename F::Processor, Missing>) {
    t.create_processor = &CreateProcessor<typename F::Processor>;
    t.processor_takes_output_dir = TakesOutputDir<typename F::Processor>();
  }
  return t;
}

}  // namespace elasticdl::plugin
