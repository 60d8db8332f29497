#include "state.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "memory.h"

// What the handles point to. Nothing of it is used: a handle is looked up, so
// that one that is none is an error and not a crash.
struct CUstream_st {};
struct CUevent_st {};

namespace test_cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct State {
  const pid_t pid = getpid();
  std::atomic<cudaError_t> broken{cudaSuccess};
  std::atomic<int64_t> calls{0};
  // When all calls begin to fail, and with what.
  std::atomic<int64_t> break_at{kNever};
  std::atomic<cudaError_t> break_with{cudaSuccess};
  std::atomic<int64_t> hang_at{kNever};
  std::mutex mu;
  // Guarded by mu.
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<int, std::shared_ptr<Stream>> null_streams;
  std::map<cudaEvent_t, std::shared_ptr<Event>> events;
};

// TEST_CUDART_FAULT.
void ReadFault(State& state) {
  const char* const text = std::getenv("TEST_CUDART_FAULT");
  if (text == nullptr || *text == '\0') return;
  const std::string fault = text;
  const size_t at = fault.find('@');
  const std::string kind = fault.substr(0, at);
  if (at == std::string::npos || (kind != "break" && kind != "hang")) {
    std::fprintf(stderr, "test cudart: TEST_CUDART_FAULT=%s is no fault\n",
                 text);
    std::abort();
  }
  const int64_t call = std::atoll(fault.c_str() + at + 1);
  state.break_with = cudaErrorIllegalAddress;
  (kind == "break" ? state.break_at : state.hang_at) = call;
}

// Never destroyed: streams may outlive main.
State& GetState() {
  static auto* const state = [] {
    auto* const made = new State;
    ReadFault(*made);
    return made;
  }();
  return *state;
}

// May this process have the fault? Asked when it is due.
bool HasFault() {
  static const bool has = [] {
    const char* const once = std::getenv("TEST_CUDART_FAULT_ONCE");
    if (once == nullptr) return true;
    const int file = open(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    return file >= 0;
  }();
  return has;
}

void CountCall(State& state) {
  const int64_t call = ++state.calls;
  if (call >= state.break_at && HasFault()) {
    state.broken = state.break_with.load();
  }
  if (call == state.hang_at && HasFault()) HangStreams();
}

std::shared_ptr<Stream> NullStream(int device) {
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  std::shared_ptr<Stream>& stream = state.null_streams[device];
  if (stream == nullptr) stream = Stream::Make(device, /*is_null=*/true);
  return stream;
}

template <typename Map>
typename Map::mapped_type Find(Map State::*map,
                               const typename Map::key_type& handle) {
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  const auto it = (state.*map).find(handle);
  return it == (state.*map).end() ? nullptr : it->second;
}

// The object that was removed, or null.
template <typename Map>
typename Map::mapped_type Remove(Map State::*map,
                                 const typename Map::key_type& handle) {
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  const auto it = (state.*map).find(handle);
  if (it == (state.*map).end()) return nullptr;
  auto object = it->second;
  (state.*map).erase(it);
  return object;
}

}  // namespace

cudaError_t Enter(const char* call) {
  State& state = GetState();
  CountCall(state);
  if (IsOnStream()) {
    return Misuse(cudaErrorNotPermitted, call,
                  "host functions of a stream must not call CUDA");
  }
  if (state.pid != getpid()) {
    return Misuse(cudaErrorInitializationError, call,
                  "CUDA was used before fork; the child cannot use it");
  }
  if (Memory::Get().num_devices() == 0) return Remember(cudaErrorNoDevice);
  return Remember(state.broken);
}

cudaError_t Misuse(cudaError_t error, const char* call, const char* why) {
  std::fprintf(stderr, "test cudart: %s: %s\n", call, why);
  return Remember(error);
}

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t PeekLastError() {
  const cudaError_t broken = GetState().broken;
  return broken != cudaSuccess ? broken : last_error;
}

cudaError_t TakeLastError() {
  const cudaError_t error = PeekLastError();
  last_error = cudaSuccess;
  return error;
}

void BreakDevices(cudaError_t error) {
  GetState().break_at = kNever;
  GetState().broken = error;
}

void BreakDevicesAfter(int64_t calls, cudaError_t error) {
  State& state = GetState();
  state.break_with = error;
  state.break_at = state.calls + calls + 1;
}

int64_t NumCalls() { return GetState().calls; }

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }

std::shared_ptr<Stream> FindStream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return NullStream(current_device);
  }
  return Find(&State::streams, handle);
}

cudaStream_t AddStream(int device) {
  auto stream = Stream::Make(device, /*is_null=*/false);
  // One byte that stays: an old handle never names a new stream.
  auto* const handle = new CUstream_st;
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  state.streams[handle] = std::move(stream);
  return handle;
}

bool RemoveStream(cudaStream_t handle) {
  const auto stream = Remove(&State::streams, handle);
  if (stream == nullptr) return false;
  stream->Close();
  return true;
}

std::vector<std::shared_ptr<Stream>> AllStreams(int device) {
  std::vector<std::shared_ptr<Stream>> all;
  all.push_back(NullStream(device));
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  for (const auto& [handle, stream] : state.streams) {
    if (stream->device() == device) all.push_back(stream);
  }
  return all;
}

std::shared_ptr<Event> FindEvent(cudaEvent_t handle) {
  return Find(&State::events, handle);
}

cudaEvent_t AddEvent(int device, bool has_time) {
  auto event = std::make_shared<Event>(device, has_time);
  auto* const handle = new CUevent_st;
  State& state = GetState();
  const std::lock_guard<std::mutex> lock(state.mu);
  state.events[handle] = std::move(event);
  return handle;
}

bool RemoveEvent(cudaEvent_t handle) {
  if (Remove(&State::events, handle) == nullptr) return false;
  // Unlike streams there are many, so this one is given back.
  delete handle;
  return true;
}

}  // namespace test_cudart
