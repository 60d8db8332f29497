#include "nccl/communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/deadline.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {

NcclCommunicator::NcclCommunicator(Parts parts) : parts_(std::move(parts)) {
  parts_.watch->Add(this);
  if (!parts_.watch->Check().ok()) Wake();
}

NcclCommunicator::~NcclCommunicator() {
  parts_.watch->Remove(this);
  // Sums that nobody waited for would go on writing into memory that the caller
  // frees now.
  if (!parts_.watch->Check().ok() || parts_.world->has_open_sums()) {
    parts_.world->End(absl::AbortedError("this member left"));
    return;
  }
  parts_.world->Leave();
  parts_.runtime->Keep(std::move(parts_.world));
}

absl::Status NcclCommunicator::Call(const std::function<absl::Status()>& body) {
  ELASTICDL_RETURN_IF_ERROR(parts_.watch->Enter());
  absl::Status status = body();
  if (status.ok()) {
    parts_.watch->Complete();
    return status;
  }
  // What ended the world first explains it best. An own deadline is first-hand:
  // the watch may know only of another member whose host world ended by it.
  if (!absl::IsDeadlineExceeded(status)) {
    ELASTICDL_RETURN_IF_ERROR(parts_.watch->Check());
  }
  parts_.watch->End(status);
  return status;
}

absl::Status NcclCommunicator::AllReduce(void* data, size_t count,
                                         DataType type,
                                         absl::Duration timeout) {
  return Call(
      [&] { return parts_.host->AllReduce(data, count, type, timeout); });
}

absl::Status NcclCommunicator::Broadcast(void* data, size_t bytes, int root,
                                         absl::Duration timeout) {
  if (root < 0 || root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast from rank ", root, " in a world of ", size()));
  }
  return Call(
      [&] { return parts_.host->Broadcast(data, bytes, root, timeout); });
}

absl::Status NcclCommunicator::AllGather(const void* in, void* out,
                                         size_t bytes, absl::Duration timeout) {
  return Call([&] { return parts_.host->AllGather(in, out, bytes, timeout); });
}

absl::Status NcclCommunicator::ReduceScatter(void* data, size_t count,
                                             DataType type,
                                             absl::Duration timeout) {
  return Call(
      [&] { return parts_.host->ReduceScatter(data, count, type, timeout); });
}

absl::Status NcclCommunicator::Barrier(absl::Duration timeout) {
  return Call([&] { return parts_.host->Barrier(timeout); });
}

absl::Status NcclCommunicator::AllReduce(void* data, size_t count,
                                         DataType type, DeviceEvent event,
                                         absl::Duration timeout) {
  Deadline deadline(timeout);
  return parts_.world->AllReduce(data, count, type, event, deadline);
}

absl::Status NcclCommunicator::Wait(DeviceEvent event, absl::Duration timeout) {
  Deadline deadline(timeout);
  return parts_.world->Wait(event, deadline);
}

}  // namespace elasticdl::collective
