// Snapshots and loaded checkpoints in memory.
#include "elasticdl/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace elasticdl::checkpoint {
namespace {

// How many differing tensors a message lists.
constexpr size_t kListed = 3;

std::string TypeAndShape(const NamedTensor& tensor) {
  return absl::StrCat(TypeName(tensor.dtype), "[",
                      absl::StrJoin(tensor.shape, ","), "]");
}

const NamedTensor* Find(const std::vector<NamedTensor>& sorted,
                        absl::string_view name) {
  const auto found =
      std::lower_bound(sorted.begin(), sorted.end(), name,
                       [](const NamedTensor& tensor, absl::string_view n) {
                         return tensor.name < n;
                       });
  return found != sorted.end() && found->name == name ? &*found : nullptr;
}

size_t TotalBytes(const std::vector<NamedTensor>& tensors) {
  size_t total = 0;
  for (const NamedTensor& tensor : tensors) total += tensor.bytes.size();
  return total;
}

// Copies the bytes of `tensors` to `to` and makes them refer to the copy.
char* MoveViews(std::vector<NamedTensor>& tensors, char* to) {
  for (NamedTensor& tensor : tensors) {
    const size_t size = tensor.bytes.size();
    if (size > 0) std::memcpy(to, tensor.bytes.data(), size);
    tensor.bytes = absl::MakeConstSpan(to, size);
    to += size;
  }
  return to;
}

}  // namespace

int64_t ElementBytes(v1::DataType dtype) {
  switch (dtype) {
    case v1::DT_DOUBLE:
    case v1::DT_INT64:
      return 8;
    case v1::DT_FLOAT:
    case v1::DT_INT32:
      return 4;
    case v1::DT_INT16:
    case v1::DT_BFLOAT16:
    case v1::DT_HALF:
      return 2;
    case v1::DT_UINT8:
    case v1::DT_INT8:
    case v1::DT_BOOL:
      return 1;
    default:
      return 0;
  }
}

const char* TypeName(v1::DataType dtype) {
  switch (dtype) {
    case v1::DT_FLOAT:
      return "float32";
    case v1::DT_DOUBLE:
      return "float64";
    case v1::DT_INT32:
      return "int32";
    case v1::DT_UINT8:
      return "uint8";
    case v1::DT_INT16:
      return "int16";
    case v1::DT_INT8:
      return "int8";
    case v1::DT_INT64:
      return "int64";
    case v1::DT_BOOL:
      return "bool";
    case v1::DT_BFLOAT16:
      return "bfloat16";
    case v1::DT_HALF:
      return "float16";
    default:
      return "unknown";
  }
}

std::string Describe(const NamedTensor& tensor) {
  return absl::StrCat(tensor.name, " ", TypeAndShape(tensor));
}

std::string SlotName(absl::string_view param, absl::string_view slot) {
  return absl::StrCat(param, "/", slot);
}

OwnedSnapshot OwnedSnapshot::Copy(const Snapshot& snapshot) {
  OwnedSnapshot owned;
  owned.snapshot = snapshot;
  // Not value-initialised: every byte is written below.
  owned.buffer.reset(
      new char[TotalBytes(snapshot.variables) + TotalBytes(snapshot.slots)]);
  char* to = MoveViews(owned.snapshot.variables, owned.buffer.get());
  MoveViews(owned.snapshot.slots, to);
  owned.snapshot.tables.clear();
  for (const TableRows& rows : snapshot.tables) {
    OwnedTableRows copy;
    copy.name = rows.name;
    copy.dim = rows.dim;
    copy.initializer = rows.initializer;
    copy.ids.assign(rows.ids.begin(), rows.ids.end());
    copy.values.assign(rows.values.begin(), rows.values.end());
    for (const TableRows::Slot& slot : rows.slots) {
      copy.slots.push_back(
          {slot.name, {slot.values.begin(), slot.values.end()}});
    }
    copy.ranks.assign(rows.ranks.begin(), rows.ranks.end());
    owned.AddTable(std::move(copy));
  }
  return owned;
}

absl::Span<const char> OwnedSnapshot::Keep(std::vector<float> values) {
  // A vector that is moved keeps its memory.
  arrays.push_back(std::move(values));
  return absl::MakeConstSpan(
      reinterpret_cast<const char*>(arrays.back().data()),
      arrays.back().size() * sizeof(float));
}

void OwnedSnapshot::AddTable(OwnedTableRows rows) {
  TableRows view;
  view.name = std::move(rows.name);
  view.dim = rows.dim;
  view.initializer = std::move(rows.initializer);
  ids.push_back(std::move(rows.ids));
  view.ids = ids.back();
  arrays.push_back(std::move(rows.values));
  view.values = arrays.back();
  for (OwnedTableRows::Slot& slot : rows.slots) {
    arrays.push_back(std::move(slot.values));
    view.slots.push_back({std::move(slot.name), arrays.back()});
  }
  ids.push_back(std::move(rows.ranks));
  view.ranks = ids.back();
  snapshot.tables.push_back(std::move(view));
}

const NamedTensor* Loaded::FindVariable(absl::string_view name) const {
  return Find(variables, name);
}

const NamedTensor* Loaded::FindSlot(absl::string_view param,
                                    absl::string_view slot) const {
  return Find(slots, SlotName(param, slot));
}

char* Loaded::Allocate(size_t bytes) {
  return storage_.emplace_back(new char[bytes]).get();
}

absl::Status CheckCompatible(const Loaded& loaded,
                             absl::Span<const NamedTensor> model,
                             absl::Span<const std::string> other_names) {
  std::map<absl::string_view, const NamedTensor*> wanted;
  for (const NamedTensor& tensor : model) wanted[tensor.name] = &tensor;
  std::vector<std::string> differences;
  for (const auto& [name, tensor] : wanted) {
    const NamedTensor* have = loaded.FindVariable(name);
    if (have == nullptr) {
      differences.push_back(
          absl::StrCat("the checkpoint has no ", Describe(*tensor)));
    } else if (have->dtype != tensor->dtype || have->shape != tensor->shape) {
      differences.push_back(absl::StrCat(
          name, " is ", TypeAndShape(*tensor), " in the model and ",
          TypeAndShape(*have), " in the checkpoint"));
    }
  }
  for (const NamedTensor& tensor : loaded.variables) {
    if (wanted.count(tensor.name) == 0 &&
        absl::c_find(other_names, tensor.name) == other_names.end()) {
      differences.push_back(
          absl::StrCat("the model has no ", Describe(tensor)));
    }
  }
  if (differences.empty()) return absl::OkStatus();
  const size_t total = differences.size();
  if (total > kListed) {
    differences.resize(kListed);
    differences.push_back(absl::StrCat("and ", total - kListed, " more"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "restore from ", loaded.path,
      ": checkpoint of another model: ", absl::StrJoin(differences, "; ")));
}

}  // namespace elasticdl::checkpoint
