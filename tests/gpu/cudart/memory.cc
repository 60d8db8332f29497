#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace test_cudart {
namespace {

constexpr size_t kDefaultCapacity = size_t{8} << 30;
// As cudaMalloc's.
constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;
// NaN as a float, -1 as an integer: nobody takes it for a result.
constexpr int kFill = 0xff;

size_t ReadSetting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end != '\0') {
    std::fprintf(stderr, "test cudart: %s=%s is not a number\n", name, text);
    std::abort();
  }
  return value;
}

char* Map(size_t bytes, int protection) {
  void* const base = mmap(nullptr, bytes, protection,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("test cudart: cannot reserve device memory");
    std::abort();
  }
  return static_cast<char*>(base);
}

bool Contains(const std::map<size_t, size_t>& blocks, size_t offset,
              size_t bytes) {
  auto after = blocks.upper_bound(offset);
  if (after == blocks.begin()) return false;
  const auto [begin, size] = *std::prev(after);
  return offset - begin <= size && bytes <= size - (offset - begin);
}

}  // namespace

Memory& Memory::Get() {
  static Memory* const memory = [] {
    const size_t capacity = ReadSetting("TEST_CUDART_MEMORY", kDefaultCapacity);
    return new Memory(static_cast<int>(ReadSetting("TEST_CUDART_DEVICES", 1)),
                      (capacity + kPage - 1) / kPage * kPage);
  }();
  return *memory;
}

Memory::Memory(int num_devices, size_t capacity)
    : num_devices_(num_devices), capacity_(capacity) {
  const size_t all = capacity_ * static_cast<size_t>(num_devices_);
  if (all == 0) return;
  device_base_ = Map(all, PROT_NONE);
  host_base_ = Map(all, PROT_READ | PROT_WRITE);
  for (int i = 0; i < num_devices_; ++i) {
    free_[capacity_ * static_cast<size_t>(i)] = capacity_;
  }
}

size_t Memory::Allocated(int device) const {
  const std::lock_guard<std::mutex> lock(mu_);
  size_t allocated = 0;
  for (const auto& [offset, size] : used_) {
    if (static_cast<int>(offset / capacity_) == device) allocated += size;
  }
  return allocated;
}

void* Memory::Allocate(int device, size_t bytes) {
  if (bytes > capacity_) return nullptr;
  const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard<std::mutex> lock(mu_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, available] = *it;
    if (static_cast<int>(offset / capacity_) != device || available < size) {
      continue;
    }
    free_.erase(it);
    if (available > size) free_[offset + size] = available - size;
    used_[offset] = size;
    std::memset(host_base_ + offset, kFill, size);
    return device_base_ + offset;
  }
  return nullptr;
}

bool Memory::Free(void* address) {
  if (Host(address) == nullptr) return false;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto it = used_.find(
      static_cast<size_t>(static_cast<char*>(address) - device_base_));
  if (it == used_.end()) return false;
  const auto [offset, size] = *it;
  std::memset(host_base_ + offset, kFill, size);
  used_.erase(it);
  AddFree(offset, size);
  return true;
}

void Memory::AddFree(size_t offset, size_t size) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size &&
      next->first % capacity_ != 0) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && offset % capacity_ != 0) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

char* Memory::Host(const void* address) const {
  const int device = DeviceOf(address);
  if (device < 0) return nullptr;
  return host_base_ + (static_cast<const char*>(address) - device_base_);
}

int Memory::DeviceOf(const void* address) const {
  const auto* const at = static_cast<const char*>(address);
  if (device_base_ == nullptr || at < device_base_) return -1;
  const size_t device = static_cast<size_t>(at - device_base_) / capacity_;
  return device < static_cast<size_t>(num_devices_) ? static_cast<int>(device)
                                                    : -1;
}

bool Memory::IsAllocated(const void* address, size_t bytes) const {
  if (DeviceOf(address) < 0) return false;
  const std::lock_guard<std::mutex> lock(mu_);
  return Contains(
      used_,
      static_cast<size_t>(static_cast<const char*>(address) - device_base_),
      bytes);
}

void* Memory::AllocatePinned(size_t bytes) {
  void* address = nullptr;
  if (posix_memalign(&address, kPage, bytes) != 0) return nullptr;
  const std::lock_guard<std::mutex> lock(mu_);
  pinned_[static_cast<const char*>(address)] = bytes;
  return address;
}

bool Memory::FreePinned(void* address) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (pinned_.erase(static_cast<const char*>(address)) == 0) return false;
  }
  std::free(address);
  return true;
}

bool Memory::IsPinned(const void* address, size_t bytes) const {
  const auto* const at = static_cast<const char*>(address);
  const std::lock_guard<std::mutex> lock(mu_);
  auto after = pinned_.upper_bound(at);
  if (after == pinned_.begin()) return false;
  const auto [begin, size] = *std::prev(after);
  const auto offset = static_cast<size_t>(at - begin);
  return offset <= size && bytes <= size - offset;
}

}  // namespace test_cudart
