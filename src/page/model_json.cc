#include "model_json.h"

#include <nlohmann/json.hpp>

#include "elasticdl/common/json_text.h"
#include "elasticdl/common/text.h"
#include "elasticdl/page/history.h"

namespace elasticdl::page {
namespace {

using Json = nlohmann::ordered_json;

// More dimensions than tensors have.
constexpr size_t kMaxDimensions = 16;

void CopyText(const Json& from, const char* key, Json& to) {
  const auto it = from.find(key);
  if (it == from.end() || !it->is_string()) return;
  to[key] = CutText(it->get<std::string>(), History::kMaxText);
}

void CopyNumber(const Json& from, const char* key, Json& to) {
  const auto it = from.find(key);
  if (it != from.end() && it->is_number_integer()) to[key] = *it;
}

Json TensorOf(const Json& from) {
  Json tensor = Json::object();
  for (const char* key : {"name", "layer", "dtype", "kind"}) {
    CopyText(from, key, tensor);
  }
  for (const char* key : {"count", "bytes"}) CopyNumber(from, key, tensor);
  Json shape = Json::array();
  const auto it = from.find("shape");
  if (it == from.end() || !it->is_array()) return tensor;
  for (const Json& size : *it) {
    if (size.is_number_integer() && shape.size() < kMaxDimensions) {
      shape.push_back(size);
    }
  }
  tensor["shape"] = std::move(shape);
  return tensor;
}

}  // namespace

std::string ModelJson(const Json& event) {
  Json model = Json::object();
  CopyText(event, "optimizer", model);
  for (const char* key :
       {"num_tensors", "trained", "frozen", "buffers", "bytes"}) {
    CopyNumber(event, key, model);
  }
  Json tensors = Json::array();
  const auto it = event.find("tensors");
  if (it != event.end() && it->is_array()) {
    for (const Json& tensor : *it) {
      if (tensors.size() >= History::kMaxTensors) break;
      if (tensor.is_object()) tensors.push_back(TensorOf(tensor));
    }
  }
  model["tensors"] = std::move(tensors);
  return JsonText(model);
}

}  // namespace elasticdl::page
