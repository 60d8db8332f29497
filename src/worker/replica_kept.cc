// The state of a replica in memory that outlives its process
// (docs/design/0014-state-that-outlives-its-process.md).
//
// The arrays of that memory, in this order: values, gradients, the slots of the
// optimizer, the undo array, parameters that are not trained, buffers, and what
// the buffers were after the last step.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "buffer_floats.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "large_array.h"
#include "replica.h"

namespace elasticdl::worker {
namespace {

constexpr size_t kValuesArray = 0;
constexpr size_t kGradientsArray = 1;
constexpr size_t kFirstSlotArray = 2;
// After the slots.
constexpr size_t kArraysAfterSlots = 4;
constexpr size_t kTensorAlignment = 64;
// Updated between two visits of a failpoint; a multiple of a vector.
constexpr size_t kChunkFloats = 1 << 16;

}  // namespace

// Tensors one after the other in one array.
struct Replica::Packed {
  struct Entry {
    torch::Tensor tensor;
    size_t offset = 0;
  };
  std::vector<Entry> entries;
  size_t bytes = 0;

  void Add(const torch::Tensor& tensor) {
    entries.push_back({tensor, bytes});
    bytes += (tensor.nbytes() + kTensorAlignment - 1) / kTensorAlignment *
             kTensorAlignment;
  }
};

Replica::Packed Replica::PackedBuffers() const {
  Packed packed;
  // A module may be part of the network twice.
  std::set<const void*> seen;
  for (const auto& [name, buffer] : network_->buffers()) {
    if (seen.insert(buffer.unsafeGetTensorImpl()).second) packed.Add(buffer);
  }
  return packed;
}

Replica::Packed Replica::PackedUntrained() const {
  Packed packed;
  std::set<const void*> seen;
  for (const torch::Tensor& tensor : Untrained()) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) packed.Add(tensor);
  }
  return packed;
}

void Replica::StopKeeping(const absl::Status& why) {
  LogWarning("the model's state is not kept in memory: ", why.message());
  // Arrays that are in it stay valid.
  kept_.reset();
}

torch::Tensor Replica::NewArray(int64_t floats) {
  if (kept_ != nullptr) {
    const auto array =
        kept_->AddArray(static_cast<size_t>(floats) * sizeof(float));
    if (array.ok()) {
      return torch::from_blob(
          *array, {floats}, [kept = kept_](void*) {}, torch::kFloat32);
    }
    StopKeeping(array.status());
  }
  return MakeArray(floats, device());
}

// What is not trained, and the buffers.
void Replica::MoveToKept() {
  if (kept_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  const auto move = [&]() -> absl::Status {
    ELASTICDL_RETURN_IF_ERROR(kept_->AddUndo(UndoBytes()));
    const Packed untrained = PackedUntrained();
    const Packed buffers = PackedBuffers();
    std::set<const void*> storages;
    for (const Packed* packed : {&untrained, &buffers}) {
      for (const Packed::Entry& entry : packed->entries) {
        if (entry.tensor.nbytes() > 0 &&
            !storages.insert(entry.tensor.storage().data()).second) {
          return absl::UnimplementedError(
              "two buffers of the model share their memory");
        }
      }
    }
    const auto place = [this](const Packed& packed) -> absl::StatusOr<char*> {
      ELASTICDL_ASSIGN_OR_RETURN(char* const array,
                                 kept_->AddArray(packed.bytes));
      for (const Packed::Entry& entry : packed.entries) {
        torch::Tensor tensor = entry.tensor;
        torch::Tensor moved = torch::from_blob(
            array + entry.offset, tensor.sizes(), [kept = kept_](void*) {},
            torch::TensorOptions(tensor.scalar_type()));
        moved.copy_(tensor);
        tensor.set_data(moved);
      }
      return array;
    };
    ELASTICDL_RETURN_IF_ERROR(place(untrained).status());
    ELASTICDL_ASSIGN_OR_RETURN(kept_buffers_, place(buffers));
    ELASTICDL_ASSIGN_OR_RETURN(kept_committed_, kept_->AddArray(buffers.bytes));
    return absl::OkStatus();
  };
  const absl::Status moved = move();
  if (!moved.ok()) StopKeeping(moved);
  TrimMemory();
}

void Replica::SealKept() {
  if (kept_ == nullptr) return;
  const absl::Status sealed = kept_->Seal(LayoutDigest());
  if (!sealed.ok()) StopKeeping(sealed);
}

torch::Tensor Replica::RememberBuffer(const torch::Tensor& buffer) const {
  if (kept_ == nullptr) return buffer.clone();
  const auto offset = static_cast<const char*>(buffer.data_ptr()) -
                      static_cast<const char*>(kept_buffers_);
  torch::Tensor copy = torch::from_blob(
      kept_committed_ + offset, buffer.sizes(), [kept = kept_](void*) {},
      torch::TensorOptions(buffer.scalar_type()));
  copy.copy_(buffer);
  return copy;
}

// ---- updates ----

size_t Replica::UndoBytes() const {
  return (1 + slot_pointers_.size()) * optim::UndoLog::kFloats * sizeof(float);
}

void Replica::ApplyTo(size_t begin, size_t end, double learning_rate) {
  const float* const gradients = flat_->gradients();
  if (kept_ == nullptr) return ApplyFrom(gradients, begin, end, learning_rate);
  optim::UndoLog log = {reinterpret_cast<float*>(kept_->undo()),
                        &kept_->progress(), &kept_->count(), 0};
  for (size_t chunk = begin; chunk < end; chunk += kChunkFloats) {
    // For tests that kill.
    Failpoint("worker.update").IgnoreError();
    log.base = chunk;
    ApplyFrom(gradients, chunk, std::min(end, chunk + kChunkFloats),
              learning_rate, kept_->updating() ? &log : nullptr);
  }
}

void Replica::EndStep() {
  if (kept_ != nullptr) kept_->EndUpdate();
}

// ---- taking over ----

absl::Status Replica::CheckKept(const keep::KeptReader& reader) const {
  if (!on_cpu()) {
    return absl::FailedPreconditionError(
        "a state in memory is for workers on the CPU");
  }
  const size_t num_slots = slot_pointers_.size();
  const size_t floats = flat_->size();
  bool same =
      reader.layout() == LayoutDigest() &&
      reader.num_arrays() == kFirstSlotArray + num_slots + kArraysAfterSlots;
  const auto expect = [&](size_t array, size_t bytes) {
    same = same && reader.array(array).size() == bytes;
  };
  expect(kValuesArray, floats * sizeof(float));
  expect(kGradientsArray, (flat_->head_size() + floats) * sizeof(float));
  for (size_t i = 0; i < num_slots; ++i) {
    expect(kFirstSlotArray + i, floats * sizeof(float));
  }
  const size_t after = kFirstSlotArray + num_slots;
  expect(after, UndoBytes());
  expect(after + 1, PackedUntrained().bytes);
  expect(after + 2, PackedBuffers().bytes);
  expect(after + 3, PackedBuffers().bytes);
  const keep::KeptReader::Update& update = reader.update();
  same = same && update.done <= floats &&
         update.torn <= std::min(optim::UndoLog::kFloats, floats - update.done);
  return same ? absl::OkStatus()
              : absl::FailedPreconditionError(
                    "the state that was kept is of another model");
}

absl::Status Replica::RestoreKept(const keep::KeptReader& reader) {
  ELASTICDL_RETURN_IF_ERROR(CheckKept(reader));
  GiveUpLive("the state of a lost worker is restored");
  const keep::KeptReader::Update& update = reader.update();
  const size_t num_slots = slot_pointers_.size();
  const size_t after = kFirstSlotArray + num_slots;
  std::vector<float*> updated = {flat_->values()};
  updated.insert(updated.end(), slot_pointers_.begin(), slot_pointers_.end());
  for (size_t i = 0; i < updated.size(); ++i) {
    const size_t array = i == 0 ? kValuesArray : kFirstSlotArray + i - 1;
    memcpy(updated[i], reader.array(array).data(), reader.array(array).size());
    const char* const undo = reader.array(after).data();
    memcpy(updated[i] + update.done,
           undo + i * optim::UndoLog::kFloats * sizeof(float),
           update.torn * sizeof(float));
  }
  for (const Packed::Entry& entry : PackedUntrained().entries) {
    memcpy(entry.tensor.data_ptr(),
           reader.array(after + 1).data() + entry.offset,
           entry.tensor.nbytes());
  }
  for (const Packed::Entry& entry : PackedBuffers().entries) {
    // Those that members keep level are, in the middle of a step, on their way
    // to the next one; when its update has begun, they are there.
    const bool remembered = HasFloats(entry.tensor) && !update.open;
    memcpy(entry.tensor.data_ptr(),
           reader.array(after + (remembered ? 3 : 2)).data() + entry.offset,
           entry.tensor.nbytes());
  }
  step_ = reader.facts().step;
  if (!update.open) return absl::OkStatus();
  const auto* const gradients =
      reinterpret_cast<const float*>(reader.array(kGradientsArray).data()) +
      flat_->head_size();
  ApplyFrom(gradients, update.done, flat_->size(),
            reader.facts().learning_rate);
  LogInfo("finished the update to step ", step_, " that broke off after ",
          update.done, " of ", flat_->size(), " numbers");
  return absl::OkStatus();
}

}  // namespace elasticdl::worker
