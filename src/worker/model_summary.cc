#include "model_summary.h"

#include <cstdint>
#include <map>
#include <utility>

#include "elasticdl/common/text.h"

namespace elasticdl::worker {
namespace {

using Types = std::map<std::string, std::string>;

// The layer of "a.b.weight" is "a.b".
std::string LayerOf(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

// Float -> float32 as in Python.
std::string TypeName(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "float32";
    case torch::kFloat64:
      return "float64";
    case torch::kFloat16:
      return "float16";
    case torch::kBFloat16:
      return "bfloat16";
    case torch::kInt64:
      return "int64";
    case torch::kInt32:
      return "int32";
    case torch::kUInt8:
      return "uint8";
    case torch::kBool:
      return "bool";
    default:
      return torch::toString(type);
  }
}

class Summary {
 public:
  explicit Summary(Types types) : types_(std::move(types)) {}

  void AddTensor(const std::string& name, const torch::Tensor& tensor,
                 v1::ModelTensor::Kind kind) {
    message_.set_bytes(message_.bytes() +
                       static_cast<int64_t>(tensor.nbytes()));
    v1::ModelTensor* const out = Add(name, kind);
    if (out == nullptr) return;
    out->set_dtype(TypeName(tensor.scalar_type()));
    out->set_bytes(static_cast<int64_t>(tensor.nbytes()));
    for (const int64_t size : tensor.sizes()) out->add_shape(size);
  }

  void AddTable(const ShardedTable& table) {
    v1::ModelTensor* const out = Add(table.name, v1::ModelTensor::TABLE);
    if (out == nullptr) return;
    out->add_shape(table.input_dim);
    out->add_shape(table.dim);
  }

  v1::ModelSummary& message() { return message_; }

 private:
  // Null if there are too many.
  v1::ModelTensor* Add(const std::string& name, v1::ModelTensor::Kind kind) {
    message_.set_num_tensors(message_.num_tensors() + 1);
    if (static_cast<size_t>(message_.tensors_size()) >= kMaxSummaryTensors) {
      return nullptr;
    }
    v1::ModelTensor* const out = message_.add_tensors();
    out->set_name(CutText(name, kMaxSummaryText));
    const auto type = types_.find(LayerOf(name));
    if (type != types_.end()) {
      out->set_layer_type(CutText(type->second, kMaxSummaryText));
    }
    out->set_kind(kind);
    return out;
  }

  const Types types_;
  v1::ModelSummary message_;
};

}  // namespace

v1::ModelSummary SummarizeModel(const model::Network& network,
                                const std::string& optimizer) {
  Summary summary(network.LayerTypes());
  v1::ModelSummary& message = summary.message();
  for (const auto& [name, tensor] : network.parameters()) {
    if (tensor.requires_grad()) {
      message.set_trained(message.trained() + tensor.numel());
      summary.AddTensor(name, tensor, v1::ModelTensor::TRAINED);
    } else {
      message.set_frozen(message.frozen() + tensor.numel());
      summary.AddTensor(name, tensor, v1::ModelTensor::FROZEN);
    }
  }
  for (const ShardedTable& table : network.tables()) summary.AddTable(table);
  for (const auto& [name, tensor] : network.buffers()) {
    message.set_buffers(message.buffers() + tensor.numel());
    summary.AddTensor(name, tensor, v1::ModelTensor::BUFFER);
  }
  message.set_optimizer(CutText(optimizer, kMaxSummaryText));
  return message;
}

}  // namespace elasticdl::worker
