#include "stream.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

namespace test_cudart {
namespace {

thread_local bool is_on_stream = false;

TestCudartSchedule ReadSchedule() {
  const char* const name = std::getenv("TEST_CUDART_SCHEDULE");
  if (name == nullptr || *name == '\0' || std::strcmp(name, "eager") == 0) {
    return kTestCudartEager;
  }
  if (std::strcmp(name, "null") == 0) return kTestCudartNullLazy;
  if (std::strcmp(name, "side") == 0) return kTestCudartSideLazy;
  if (std::strcmp(name, "all") == 0) return kTestCudartAllLazy;
  std::fprintf(stderr,
               "test cudart: TEST_CUDART_SCHEDULE=%s is none of eager, null, "
               "side, all\n",
               name);
  std::abort();
}

std::atomic<TestCudartSchedule>& Schedule() {
  static auto* const schedule =
      new std::atomic<TestCudartSchedule>(ReadSchedule());
  return *schedule;
}

// The streams whose threads run.
struct Running {
  std::mutex mu;
  std::set<Stream*> streams;
};
Running& GetRunning() {
  static auto* const running = new Running;
  return *running;
}

std::atomic<bool>& Hung() {
  static auto* const hung = new std::atomic<bool>(false);
  return *hung;
}

// For ever: as a kernel that does not end.
void WaitWhileHung() {
  if (!Hung()) return;
  std::mutex mu;
  std::condition_variable never;
  std::unique_lock<std::mutex> lock(mu);
  never.wait(lock, [] { return !Hung(); });
}

}  // namespace

void HangStreams() { Hung() = true; }

bool IsOnStream() { return is_on_stream; }

void SetSchedule(TestCudartSchedule schedule) {
  Schedule() = schedule;
  Running& running = GetRunning();
  const std::lock_guard<std::mutex> lock(running.mu);
  for (Stream* const stream : running.streams) stream->Wake();
}

std::shared_ptr<Stream> Stream::Make(int device, bool is_null) {
  std::shared_ptr<Stream> stream(new Stream(device, is_null));
  {
    const std::lock_guard<std::mutex> lock(GetRunning().mu);
    GetRunning().streams.insert(stream.get());
  }
  // Ends by Close; a hung piece of work must not keep the process.
  std::thread([stream] {
    stream->Run();
    const std::lock_guard<std::mutex> lock(GetRunning().mu);
    GetRunning().streams.erase(stream.get());
  }).detach();
  return stream;
}

bool Stream::IsLazy() const {
  return (Schedule() &
          (is_null_ ? kTestCudartNullLazy : kTestCudartSideLazy)) != 0;
}

void Stream::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] {
      if (queue_.empty()) return closed_;
      return closed_ || done_ < wanted_ || !IsLazy();
    });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    is_on_stream = true;
    WaitWhileHung();
    work();
    work = nullptr;
    is_on_stream = false;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

uint64_t Stream::Push(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mu_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++pushed_;
}

uint64_t Stream::pushed() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return pushed_;
}

void Stream::Want(uint64_t number) {
  if (wanted_ >= number) return;
  wanted_ = number;
  changed_.notify_all();
}

bool Stream::IsDone(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mu_);
  Want(number);
  return done_ >= number;
}

void Stream::Wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mu_);
  Want(number);
  changed_.wait(lock, [&] { return done_ >= number; });
}

void Stream::Close() {
  const std::lock_guard<std::mutex> lock(mu_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::Wake() {
  const std::lock_guard<std::mutex> lock(mu_);
  changed_.notify_all();
}

void Event::Record(const std::shared_ptr<Stream>& stream) {
  Mark mark;
  mark.stream = stream;
  mark.time = std::make_shared<std::chrono::steady_clock::time_point>();
  // Two threads that record one event: the last one counts, in both senses.
  const std::lock_guard<std::mutex> lock(mu_);
  mark.number = stream->Push(
      [time = mark.time] { *time = std::chrono::steady_clock::now(); });
  mark_ = std::move(mark);
}

Event::Mark Event::mark() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return mark_;
}

}  // namespace test_cudart
