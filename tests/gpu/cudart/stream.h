// Streams and events of the test devices.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "test_cudart.h"

namespace test_cudart {

// The rule for all streams. Wakes those that may run now.
void SetSchedule(TestCudartSchedule schedule);
// From now on no stream does anything, as after a kernel that does not end.
void HangStreams();

// A queue of work with a thread of its own. Thread-safe. Shared by its handle,
// by the events recorded in it and by its thread, which runs everything that
// was queued before it ends.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> Make(int device, bool is_null);

  int device() const { return device_; }
  // Returns the number of the work, from 1.
  uint64_t Push(std::function<void()> work);
  // The number of the last work that was pushed.
  uint64_t pushed() const;
  // Has everything up to this number been done? Asking makes a lazy stream run.
  bool IsDone(uint64_t number);
  void Wait(uint64_t number);
  // No more work comes. The thread ends when all is done.
  void Close();

  // Looks at the schedule again.
  void Wake();

 private:
  Stream(int device, bool is_null) : device_(device), is_null_(is_null) {}
  void Run();
  bool IsLazy() const;
  void Want(uint64_t number);

  const int device_;
  const bool is_null_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::deque<std::function<void()>> queue_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
  uint64_t wanted_ = 0;
  bool closed_ = false;
};

// A point in a stream. Thread-safe.
class Event {
 public:
  Event(int device, bool has_time) : device_(device), has_time_(has_time) {}
  int device() const { return device_; }
  bool has_time() const { return has_time_; }

  // One recording; a later one does not change it.
  struct Mark {
    // Null if nothing was recorded: then there is nothing to wait for.
    std::shared_ptr<Stream> stream;
    uint64_t number = 0;
    // When the stream came there; set by then.
    std::shared_ptr<std::chrono::steady_clock::time_point> time;

    bool IsDone() const { return stream == nullptr || stream->IsDone(number); }
    void Wait() const {
      if (stream != nullptr) stream->Wait(number);
    }
  };
  void Record(const std::shared_ptr<Stream>& stream);
  Mark mark() const;

 private:
  const int device_;
  const bool has_time_;
  mutable std::mutex mu_;
  Mark mark_;
};

// True on the thread of a stream while it runs work.
bool IsOnStream();

}  // namespace test_cudart
