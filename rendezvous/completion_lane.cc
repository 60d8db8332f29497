#include "completion_lane.h"

#include <utility>

namespace elasticdl::rendezvous {

CompletionLane::CompletionLane(std::unique_ptr<grpc::CompletionQueue> queue)
    : queue_(std::move(queue)), thread_("edl-streams", [this] { Run(); }) {}

void CompletionLane::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<Operation*>(tag)->OnComplete(ok);
}

void CompletionLane::Stop() {
  if (std::exchange(stopped_, true)) return;
  queue_->Shutdown();
  thread_.Join();
}

}  // namespace elasticdl::rendezvous
