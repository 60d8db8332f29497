// Memory of the test devices.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace test_cudart {

// Thread-safe. Never destroyed: streams may outlive main.
class Memory {
 public:
  // Of the process; made at the first call from TEST_CUDART_DEVICES and
  // TEST_CUDART_MEMORY.
  static Memory& Get();

  int num_devices() const { return num_devices_; }
  // Of one device.
  size_t capacity() const { return capacity_; }
  size_t Allocated(int device) const;

  // Null when there is no room.
  void* Allocate(int device, size_t bytes);
  // False if this is no allocation.
  bool Free(void* address);

  // Where the bytes are; null if this is not the address of a device.
  char* Host(const void* address) const;
  // -1 if it is not the address of a device.
  int DeviceOf(const void* address) const;
  // Is all of it in one allocation?
  bool IsAllocated(const void* address, size_t bytes) const;

  // Pinned host memory. Null when there is none.
  void* AllocatePinned(size_t bytes);
  bool FreePinned(void* address);
  bool IsPinned(const void* address, size_t bytes) const;

 private:
  Memory(int num_devices, size_t capacity);
  void AddFree(size_t offset, size_t size);

  const int num_devices_;
  const size_t capacity_;
  // All devices one after the other, and the bytes behind them.
  char* device_base_ = nullptr;
  char* host_base_ = nullptr;
  mutable std::mutex mu_;
  // Offset to size. Blocks of two devices are never joined.
  std::map<size_t, size_t> free_;
  std::map<size_t, size_t> used_;
  std::map<const char*, size_t> pinned_;
};

}  // namespace test_cudart
