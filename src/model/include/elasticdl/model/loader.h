// Loads a model definition for the worker: a C++ model file, a prebuilt .so or
// a TorchScript file, all behind one class.
#pragma once

#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/model.h"
#include "elasticdl/model/compiler.h"
#include "elasticdl/model/sharding.h"

namespace elasticdl::model {

// A model's tensors. Thread-compatible.
class Network {
 public:
  using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

  virtual ~Network() = default;
  // The order depends only on the definition, so it is the same on every worker
  // and at every start. The tensors share memory with the model.
  virtual const Tensors& parameters() const = 0;
  virtual const Tensors& buffers() const = 0;
  // A tensor that has several names is above under the first of them. These are
  // the others, for exports.
  virtual Tensors OtherNames() const { return {}; }
  // Turns dropout, batch normalization etc. on or off.
  virtual void Train() = 0;
  virtual void Eval() = 0;
  // The model's output; part of the autograd graph unless the caller holds a
  // torch::NoGradGuard. INTERNAL with the exception's text.
  virtual absl::StatusOr<Outputs> Forward(const Features& features) = 0;
  // Tables of this network on parameter servers, in an order that depends only
  // on the definition and the options; empty unless
  // NetworkOptions.sharded_embeddings.
  virtual const std::vector<ShardedTable>& tables() const = 0;
  // Must be called before Forward when there are tables. The source must
  // outlive the network or be replaced first.
  virtual void SetRowSource(RowSource* source) = 0;
  // Bytes of parameters without initial values (NetworkOptions::late_values).
  // They are 0, or what was written into them since.
  virtual int64_t LateBytes() const { return 0; }
  // Makes these values; the parameters may have been moved.
  virtual absl::Status MakeLateValues() { return absl::OkStatus(); }
  // Name and type of each layer, as far as they are known; for people.
  virtual std::map<std::string, std::string> LayerTypes() const { return {}; }
  // The whole module, for torch::load or torch::jit::load. The rows of tables()
  // are not part of it.
  virtual absl::StatusOr<std::string> Serialize() const = 0;
};

// Sums of one metric; the fields of the message MetricSums.
struct MetricSums {
  std::string name;
  std::string kind;
  std::vector<double> sums;
};

// The evaluation metrics of one evaluation. Thread-compatible.
class MetricSet {
 public:
  explicit MetricSet(Metrics metrics) : metrics_(std::move(metrics)) {}
  // INTERNAL names the metric that threw.
  absl::Status Update(const torch::Tensor& labels, const Outputs& outputs);
  // Returns the sums since the last Take and resets them.
  std::vector<MetricSums> Take();

 private:
  Metrics metrics_;
};

// The callbacks of one training. Runs on the training thread. Hooks fail with
// INTERNAL when a callback throws.
class CallbackSet {
 public:
  explicit CallbackSet(Callbacks callbacks)
      : callbacks_(std::move(callbacks)) {}
  absl::Status OnTrainBatchBegin(int64_t step);
  absl::Status OnEvaluationEnd(int64_t step,
                               const std::map<std::string, double>& metrics);
  absl::Status OnTrainEnd();
  // The learning rate that the callbacks requested; the last one wins.
  std::optional<double> learning_rate() const;
  // Why a callback wants to stop, if one does.
  std::optional<std::string> stop_reason() const;
  bool empty() const { return callbacks_.empty(); }

 private:
  Callbacks callbacks_;
};

// Where predictions go. Thread-compatible.
class PredictionProcessor {
 public:
  virtual ~PredictionProcessor() = default;
  virtual absl::Status Process(const Outputs& predictions,
                               int64_t worker_id) = 0;
  // Whether it was given the output_dir. If not, only the model knows where the
  // predictions go.
  virtual bool uses_output_dir() const = 0;
};

struct NetworkOptions {
  // Of the initial values.
  uint64_t seed = 0;
  // The rows of each elasticdl::Embedding live on parameter servers: it has no
  // parameter, and is one of Network::tables().
  bool sharded_embeddings = false;
  // If they do: so do those of each torch::nn::Embedding and EmbeddingBag of
  // more bytes than this. 0: none.
  int64_t layer_limit = 0;
  // If they do: so do those of the layers whose weights have these names.
  std::set<std::string> layers = {};
  // Leave out initial values of large parameters, if that changes nothing else:
  // for those who may never need them. Not with sharded embeddings.
  bool late_values = false;
};

// A loaded definition. Thread-safe: Feed may run in reader threads while
// another thread trains. A loaded library is never unloaded, so networks,
// readers, metrics and callbacks may outlive the model.
class Model {
 public:
  virtual ~Model() = default;

  // A new network with initial values.
  virtual absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(
      const NetworkOptions& options) = 0;
  virtual absl::StatusOr<torch::Tensor> Loss(const torch::Tensor& labels,
                                             const Outputs& outputs) = 0;
  virtual absl::StatusOr<OptimizerSpec> Optimizer() = 0;
  // Decodes a minibatch. When the model's function throws: DATA_LOSS with the
  // first record that makes it throw on its own (see BadRecord), or INTERNAL if
  // no single record does.
  virtual absl::StatusOr<Batch> Feed(Records records, Mode mode,
                                     const Metadata& metadata) = 0;
  virtual absl::StatusOr<MetricSet> CreateMetrics() = 0;
  // An empty set if the model has none.
  virtual absl::StatusOr<CallbackSet> CreateCallbacks() = 0;
  // Null if the model has no reader of its own.
  virtual absl::StatusOr<std::unique_ptr<data::DataReader>> OpenReader(
      const std::string& origin, const data::ReaderParams& params) = 0;
  // Null if the model has no processor of its own. A processor that takes a
  // folder gets `output_dir`, which is created first.
  virtual absl::StatusOr<std::unique_ptr<PredictionProcessor>>
  CreatePredictionProcessor(const std::string& output_dir) = 0;
};

// Finds, compiles (see Compile) and loads the model. NOT_FOUND for a missing
// file; INVALID_ARGUMENT for a missing or wrong function, a source that does
// not compile (with the compiler's output), or an .so of another version.
absl::StatusOr<std::unique_ptr<Model>> Load(const LoadOptions& options);

// The index in the minibatch of the record that a Feed error names.
std::optional<int64_t> BadRecord(const absl::Status& status);

// Writes <dir>/model.pt (torch::load into the same network, or torch::jit::load
// for TorchScript) and <dir>/state_dict.pt (a dictionary for Python's
// torch.load). Each file is replaced atomically.
absl::Status ExportTo(const std::string& dir, const Network& network);
// Writes a dictionary of tensors for Python's torch.load, atomically.
absl::Status ExportTensors(const std::string& path,
                           const Network::Tensors& tensors);

}  // namespace elasticdl::model
