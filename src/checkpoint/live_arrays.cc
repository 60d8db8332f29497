#include "elasticdl/checkpoint/live_arrays.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/status.h"

namespace elasticdl::checkpoint {
namespace {

constexpr size_t kHugePage = 2 << 20;

}  // namespace

void AsideRoom::Free::operator()(char* memory) const { std::free(memory); }

AsideRoom::AsideRoom(size_t bytes) {
  if (bytes == 0) return;
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, bytes)));
  if (memory_ == nullptr) return;
  // If it is refused, small pages do.
  madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  std::memset(memory_.get(), 0, bytes);
  bytes_ = bytes;
}

absl::Span<char> AsideRoom::Take() {
  if (bytes_ == 0 || taken_.exchange(true)) return {};
  return {memory_.get(), bytes_};
}

LiveArrays::LiveArrays(std::vector<absl::Span<const char>> arrays,
                       const LiveOptions& options)
    : arrays_(std::move(arrays)), options_(options) {
  ELASTICDL_CHECK(!arrays_.empty() && options_.slice_bytes > 0);
  array_bytes_ = arrays_[0].size();
  for (const auto& array : arrays_) {
    ELASTICDL_CHECK(array.size() == array_bytes_);
  }
  num_slices_ =
      (array_bytes_ + options_.slice_bytes - 1) / options_.slice_bytes;
  slices_.resize(num_slices_);
  for (size_t i = 0; i < num_slices_; ++i) slices_[i].left = bytes(i);
  if (options_.room == nullptr) return;
  const absl::Span<char> room = options_.room->Take();
  has_room_ = !room.empty();
  for (size_t i = 0; i < room.size() / block_bytes(); ++i) {
    spare_.push_back(room.data() + i * block_bytes());
  }
}

LiveArrays::~LiveArrays() {
  MutexLock lock(mu_);
  FreeBlocks();
}

void LiveArrays::FreeBlocks() {
  spare_.clear();
  // Those of a save that was given up.
  for (Slice& slice : slices_) slice.copy = nullptr;
  more_.clear();
  if (std::exchange(has_room_, false)) options_.room->GiveBack();
}

size_t LiveArrays::end(size_t index) const {
  return std::min(array_bytes_, (index + 1) * options_.slice_bytes);
}

bool LiveArrays::finished() const {
  MutexLock lock(mu_);
  return finished_;
}

absl::Status LiveArrays::given_up() const {
  MutexLock lock(mu_);
  return given_up_;
}

absl::Duration LiveArrays::waited() const {
  MutexLock lock(mu_);
  return waited_;
}

bool LiveArrays::Full(size_t size) const {
  // One slice is put aside in any case.
  return !finished_ && aside_ > 0 && aside_ + size > options_.most_aside_bytes;
}

bool LiveArrays::Needed(size_t index) const {
  const Slice& slice = slices_[index];
  return !finished_ && slice.left > 0 && slice.copy == nullptr;
}

void LiveArrays::WaitForRoom(size_t size) {
  if (!Full(size)) return;
  const Clock& clock = Clock::Real();
  absl::Time deadline = clock.Now() + options_.patience;
  size_t seen = read_;
  waiting_ = true;
  while (Full(size)) {
    const absl::Duration left = deadline - clock.Now();
    if (left <= absl::ZeroDuration()) {
      GiveUpLocked(absl::StrCat("nothing was written for ",
                                absl::FormatDuration(options_.patience)));
      break;
    }
    changed_.WaitFor(mu_, left);
    if (std::exchange(seen, read_) != read_) {
      deadline = clock.Now() + options_.patience;
    }
  }
  waiting_ = false;
}

void LiveArrays::BeforeChange(size_t index) {
  const absl::Time start = Clock::Real().Now();
  MutexLock lock(mu_);
  const size_t size = bytes(index);
  if (!Needed(index)) return;
  WaitForRoom(size);
  if (Needed(index)) PutAside(index);
  waited_ += Clock::Real().Now() - start;
}

void LiveArrays::PutAside(size_t index) {
  if (spare_.empty()) {
    more_.emplace_back(new char[block_bytes()]);
    spare_.push_back(more_.back().get());
  }
  char* const block = spare_.back();
  spare_.pop_back();
  // The reader goes on meanwhile; it may even read the same slice.
  copying_ = true;
  mu_.Unlock();
  char* to = block;
  for (const absl::Span<const char>& array : arrays_) {
    const size_t part = end(index) - begin(index);
    std::memcpy(to, array.data() + begin(index), part);
    to += part;
  }
  mu_.Lock();
  copying_ = false;
  changed_.NotifyAll();
  // A copy of one slice, which takes less than a millisecond.
  while (reading_ && reading_slice_ == index) changed_.Wait(mu_);
  if (!Needed(index)) {
    if (!finished_) spare_.push_back(block);
    return;
  }
  slices_[index].copy = block;
  aside_ += bytes(index);
}

void LiveArrays::GiveUpLocked(const std::string& reason) {
  if (finished_) return;
  finished_ = true;
  given_up_ = absl::CancelledError(reason);
  changed_.NotifyAll();
  while (reading_) changed_.Wait(mu_);
}

void LiveArrays::GiveUp(const std::string& reason) {
  MutexLock lock(mu_);
  GiveUpLocked(reason);
}

void LiveArrays::GiveUpIfWaiting(const std::string& reason) {
  MutexLock lock(mu_);
  if (waiting_) GiveUpLocked(reason);
}

absl::Status LiveArrays::Read(const char* from, size_t size, char* to) {
  for (size_t array = 0; array < arrays_.size(); ++array) {
    const char* data = arrays_[array].data();
    if (from < data || from >= data + array_bytes_) continue;
    while (size > 0) {
      const auto offset = static_cast<size_t>(from - data);
      ELASTICDL_CHECK(offset < array_bytes_);
      const size_t part =
          std::min(size, end(offset / options_.slice_bytes) - offset);
      ELASTICDL_RETURN_IF_ERROR(ReadSlice(array, offset, part, to));
      from += part;
      to += part;
      size -= part;
    }
    return absl::OkStatus();
  }
  {
    MutexLock lock(mu_);
    ELASTICDL_RETURN_IF_ERROR(given_up_);
    reading_ = true;
    reading_slice_ = num_slices_;
  }
  std::memcpy(to, from, size);
  MutexLock lock(mu_);
  reading_ = false;
  read_ += size;
  changed_.NotifyAll();
  return given_up_;
}

absl::Status LiveArrays::ReadSlice(size_t array, size_t offset, size_t size,
                                   char* to) {
  const size_t index = offset / options_.slice_bytes;
  const char* from = arrays_[array].data() + offset;
  {
    MutexLock lock(mu_);
    ELASTICDL_RETURN_IF_ERROR(given_up_);
    const Slice& slice = slices_[index];
    ELASTICDL_CHECK(slice.left >= size);
    if (slice.copy != nullptr) {
      // Nobody but this thread takes it away.
      from = slice.copy + array * (end(index) - begin(index)) +
             (offset - begin(index));
    } else {
      reading_ = true;
      reading_slice_ = index;
    }
  }
  std::memcpy(to, from, size);
  MutexLock lock(mu_);
  reading_ = false;
  read_ += size;
  Slice& slice = slices_[index];
  slice.left -= size;
  if (slice.left == 0 && slice.copy != nullptr) {
    aside_ -= bytes(index);
    spare_.push_back(std::exchange(slice.copy, nullptr));
  }
  changed_.NotifyAll();
  return given_up_;
}

absl::Status LiveArrays::Finish() {
  MutexLock lock(mu_);
  while (copying_) changed_.Wait(mu_);
  FreeBlocks();
  aside_ = 0;
  finished_ = true;
  return given_up_;
}

}  // namespace elasticdl::checkpoint
