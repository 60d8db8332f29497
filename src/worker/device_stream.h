// Streams and events of any device, by libtorch's device guards: no headers of
// CUDA, and the same code on a test device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace elasticdl::worker {

// The stream on which this thread's operations run.
c10::Stream CurrentStream(c10::Device device);
// Another one, for work beside it.
c10::Stream SideStream(c10::Device device);
// Blocks until all work of the stream is done. Only for work that waits for no
// other member: such a wait could not be ended.
void Synchronize(const c10::Stream& stream);

// A point in the work of a stream. Thread-compatible.
class StreamEvent {
 public:
  explicit StreamEvent(c10::Device device) : device_(device) {}
  ~StreamEvent();
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  // After all work that the stream has now.
  void Record(const c10::Stream& stream);
  // Later work of `stream` begins after the event. Nothing if it was never
  // recorded.
  void Block(const c10::Stream& stream) const;
  bool recorded() const { return event_ != nullptr; }
  // Of the device's runtime (collective::DeviceEvent).
  void* get() const { return event_; }

 private:
  const c10::Device device_;
  void* event_ = nullptr;
};

}  // namespace elasticdl::worker
