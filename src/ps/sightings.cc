#include "sightings.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace elasticdl::ps {
namespace {

constexpr size_t kHead = sizeof(uint64_t);
constexpr size_t kFewestSlots = 16;
constexpr uint32_t kCountMask = 0xff;
constexpr uint32_t kHashMask = 0xffffff;

size_t BytesFor(size_t slots) { return kHead + slots * sizeof(uint32_t); }

// Linear probing wants empty slots.
uint64_t MostUsed(size_t slots) { return slots * 3 / 4; }

}  // namespace

size_t Sightings::slots() const {
  return data_.empty() ? 0 : (data_.size() - kHead) / sizeof(uint32_t);
}

uint32_t Sightings::Get(size_t slot) const {
  uint32_t entry = 0;
  std::memcpy(&entry, data_.data() + BytesFor(slot), sizeof(entry));
  return entry;
}

void Sightings::Set(size_t slot, uint32_t entry) {
  std::memcpy(data_.data() + BytesFor(slot), &entry, sizeof(entry));
}

uint64_t Sightings::used() const {
  uint64_t used = 0;
  std::memcpy(&used, data_.data(), sizeof(used));
  return used;
}

void Sightings::SetUsed(uint64_t used) {
  std::memcpy(data_.data(), &used, sizeof(used));
}

bool Sightings::IsValid(absl::string_view data) {
  if (data.empty()) return true;
  if (data.size() < BytesFor(kFewestSlots) || data.size() > kMostBytes) {
    return false;
  }
  Sightings sightings;
  sightings.Restore(data);
  const size_t slots = sightings.slots();
  if (BytesFor(slots) != data.size() || (slots & (slots - 1)) != 0) {
    return false;
  }
  uint64_t used = 0;
  for (size_t i = 0; i < slots; ++i) {
    const uint32_t entry = sightings.Get(i);
    if (entry != 0 && (entry & kCountMask) == 0) return false;
    used += entry != 0 ? 1 : 0;
  }
  return used == sightings.used() && used <= MostUsed(slots);
}

bool Sightings::Add(uint64_t hash, int enough) {
  if (data_.empty()) data_.assign(BytesFor(kFewestSlots), '\0');
  const auto mine = static_cast<uint32_t>(hash & kHashMask);
  const auto wanted = static_cast<uint32_t>(std::min(enough, kMostCount));
  size_t at = mine & (slots() - 1);
  uint32_t entry = Get(at);
  while (entry != 0 && entry >> 8 != mine) {
    at = (at + 1) & (slots() - 1);
    entry = Get(at);
  }
  if (entry != 0) {
    if ((entry & kCountMask) + 1 < wanted) {
      Set(at, entry + 1);
      return false;
    }
    Remove(at);
    return true;
  }
  if (wanted <= 1) return true;
  if (used() == MostUsed(slots())) {
    if (BytesFor(slots() * 2) <= kMostBytes) {
      Rebuild(slots() * 2, 1);
    } else {
      // Until half of the room is free, so that this is seldom needed.
      do {
        Rebuild(slots(), 2);
      } while (used() > MostUsed(slots()) / 2);
    }
  }
  Insert(mine << 8 | 1);
  return false;
}

void Sightings::Insert(uint32_t entry) {
  size_t at = entry >> 8 & (slots() - 1);
  while (Get(at) != 0) at = (at + 1) & (slots() - 1);
  Set(at, entry);
  SetUsed(used() + 1);
}

// What follows moves up, unless it is nearer to its place where it is.
void Sightings::Remove(size_t slot) {
  const size_t mask = slots() - 1;
  SetUsed(used() - 1);
  for (size_t next = (slot + 1) & mask; Get(next) != 0;
       next = (next + 1) & mask) {
    const size_t home = Get(next) >> 8 & mask;
    if (((next - home) & mask) < ((next - slot) & mask)) continue;
    Set(slot, Get(next));
    slot = next;
  }
  Set(slot, 0);
}

void Sightings::Rebuild(size_t slots, uint32_t divisor) {
  Sightings old;
  std::swap(old, *this);
  data_.assign(BytesFor(slots), '\0');
  for (size_t i = 0; i < old.slots(); ++i) {
    const uint32_t entry = old.Get(i);
    const uint32_t count = (entry & kCountMask) / divisor;
    if (count > 0) Insert((entry & ~kCountMask) | count);
  }
}

}  // namespace elasticdl::ps
