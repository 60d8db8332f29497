#include "device_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace elasticdl::worker {
namespace {

using c10::impl::VirtualGuardImpl;

}  // namespace

c10::Stream CurrentStream(c10::Device device) {
  return VirtualGuardImpl(device.type()).getStream(device);
}

c10::Stream SideStream(c10::Device device) {
  return VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

void Synchronize(const c10::Stream& stream) {
  VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
}

StreamEvent::~StreamEvent() {
  if (event_ == nullptr) return;
  VirtualGuardImpl(device_.type()).destroyEvent(event_, device_.index());
}

void StreamEvent::Record(const c10::Stream& stream) {
  VirtualGuardImpl(device_.type())
      .record(&event_, stream, stream.device_index(),
              c10::EventFlag::PYTORCH_DEFAULT);
}

void StreamEvent::Block(const c10::Stream& stream) const {
  if (event_ != nullptr) VirtualGuardImpl(device_.type()).block(event_, stream);
}

}  // namespace elasticdl::worker
