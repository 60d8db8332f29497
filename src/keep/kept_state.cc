#include "elasticdl/keep/kept_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "kept_layout.h"

namespace elasticdl::keep {
namespace {

// Larger arrays begin at multiples of it, so that the kernel can give them huge
// pages where it does that for shared memory.
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kLeastHuge = 2 * kHugePage;

// Keeps the order of stores before and after it (kept_layout.h).
void InOrder() { std::atomic_signal_fence(std::memory_order_seq_cst); }

void Store(std::atomic<uint64_t>& to, uint64_t value) {
  InOrder();
  to.store(value, std::memory_order_relaxed);
  InOrder();
}

uint64_t Load(const std::atomic<uint64_t>& from) {
  return from.load(std::memory_order_relaxed);
}

uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

absl::Status ResizeKept(const Fd& fd, uint64_t bytes) {
  // The kernel would not only refuse it, but send SIGXFSZ, which kills.
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it needs ", bytes, " bytes, and the limit for the size ",
                     "of files (ulimit -f) is ", limit.rlim_cur));
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoToStatus(errno, "size of a memory to be kept");
  }
  return absl::OkStatus();
}

// At a multiple of `unit`.
void* MapAligned(int fd, uint64_t offset, size_t bytes, size_t unit) {
  if (unit <= kPageBytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                static_cast<off_t>(offset));
  }
  // Room first, then the file in the middle of it.
  void* room = mmap(nullptr, bytes + unit, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return room;
  char* const begin = static_cast<char*>(room);
  const size_t before =
      (unit - reinterpret_cast<uintptr_t>(begin) % unit) % unit;
  void* const mapped =
      mmap(begin + before, bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset));
  const int error = errno;
  if (mapped == MAP_FAILED) {
    munmap(begin, bytes + unit);
    errno = error;
    return mapped;
  }
  if (before > 0) munmap(begin, before);
  if (before < unit) munmap(begin + before + bytes, unit - before);
  return mapped;
}

// Huge pages, if there are some. The administrator may not have allowed them
// for shared memory in general (shmem_enabled), but a process may ask for them
// explicitly. That needs one page of each that is there already. Whatever is
// refused, small pages do.
void UseHugePages(char* begin, size_t bytes) {
  // Linux 6.1; not in all headers.
  constexpr int kCollapse = 25;
  madvise(begin, bytes, MADV_HUGEPAGE);
  for (size_t offset = 0; offset < bytes; offset += kHugePage) {
    madvise(begin + offset, kPageBytes, MADV_POPULATE_WRITE);
  }
  madvise(begin, bytes, kCollapse);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeptState>> KeptState::Create() {
  Fd fd(memfd_create("elasticdl-state", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoToStatus(errno, "memfd_create");
  ELASTICDL_RETURN_IF_ERROR(ResizeKept(fd, kFirstArray));
  void* const mapped = mmap(nullptr, kFirstArray, PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) {
    return ErrnoToStatus(errno, "map a memory to be kept");
  }
  // Zeros are a header that says nothing.
  auto* const header = static_cast<KeptHeader*>(mapped);
  std::unique_ptr<KeptState> state(new KeptState(std::move(fd), header));
  state->mappings_.push_back({mapped, kFirstArray});
  state->end_ = kFirstArray;
  return state;
}

KeptState::~KeptState() {
  for (const Mapping& mapping : mappings_) {
    munmap(mapping.begin, mapping.bytes);
  }
}

absl::StatusOr<char*> KeptState::AddArray(size_t bytes) {
  if (header_->num_arrays == kMostArrays) {
    return absl::ResourceExhaustedError("too many arrays to be kept");
  }
  const size_t unit = bytes >= kLeastHuge ? kHugePage : kPageBytes;
  const uint64_t offset = RoundUp(end_, unit);
  // An array of nothing has an address, too.
  const size_t whole = RoundUp(std::max<size_t>(bytes, 1), unit);
  ELASTICDL_RETURN_IF_ERROR(ResizeKept(fd_, offset + whole));
  void* const mapped = MapAligned(fd_.get(), offset, whole, unit);
  if (mapped == MAP_FAILED) {
    return ErrnoToStatus(errno, "map a memory to be kept");
  }
  mappings_.push_back({mapped, whole});
  end_ = offset + whole;
  if (unit == kHugePage) UseHugePages(static_cast<char*>(mapped), whole);
  // All of it is needed soon. If there is no memory for it, this tells; who
  // touches it gets SIGBUS. (EINVAL: a kernel before 5.14.)
  if (madvise(mapped, whole, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", whole, " bytes to be kept"));
  }
  header_->arrays[header_->num_arrays++] = {offset, bytes};
  return static_cast<char*>(mapped);
}

absl::Status KeptState::AddUndo(size_t bytes) {
  ELASTICDL_ASSIGN_OR_RETURN(undo_, AddArray(bytes));
  return absl::OkStatus();
}

absl::Status KeptState::Seal(uint64_t layout) {
  header_->layout = layout;
  // Who maps it must not be killed because it has shrunk.
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoToStatus(errno, "seal a memory to be kept");
  }
  InOrder();
  header_->magic = kMagic;
  return absl::OkStatus();
}

void KeptState::SetOwner(int64_t worker_id) {
  header_->worker_id = worker_id;
  header_->pid = getpid();
}

void KeptState::Forget() {
  updating_ = planned_ = false;
  Store(header_->word, KeptWord().Encode());
}

bool KeptState::whole() const {
  return KeptWord::Decode(Load(header_->word)).kind == KeptWord::kWhole;
}

bool KeptState::Write(const Facts& facts) {
  if (facts.totals.size() > kMostTotals) {
    Forget();
    return std::exchange(told_too_many_, true);
  }
  const uint64_t next = 1 - KeptWord::Decode(Load(header_->word)).note;
  KeptNote& note = header_->notes[next];
  note.lineage = facts.lineage;
  note.learning_rate = facts.learning_rate;
  note.num_totals = facts.totals.size();
  for (size_t i = 0; i < facts.totals.size(); ++i) {
    note.totals[i] = {facts.totals[i].first, facts.totals[i].second};
  }
  planned_ = true;
  planned_step_ = facts.step;
  return true;
}

bool KeptState::Publish(const Facts& facts) {
  planned_ = false;
  const bool written = Write(facts);
  if (!std::exchange(planned_, false)) return written;
  KeptWord word = KeptWord::Decode(Load(header_->word));
  word.kind = KeptWord::kWhole;
  word.note = 1 - word.note;
  word.step = facts.step;
  Store(header_->word, word.Encode());
  return true;
}

bool KeptState::Plan(const Facts& facts) {
  planned_ = false;
  return !whole() || Write(facts);
}

void KeptState::BeginUpdate() {
  updating_ = whole() && planned_;
  if (!updating_) return Forget();
  planned_ = false;
  Store(header_->progress, 0);
  KeptWord word = KeptWord::Decode(Load(header_->word));
  word.kind = KeptWord::kUpdating;
  word.note = 1 - word.note;
  word.step = planned_step_;
  Store(header_->word, word.Encode());
}

std::atomic<uint64_t>& KeptState::progress() { return header_->progress; }

std::atomic<uint64_t>& KeptState::count() { return header_->count; }

void KeptState::EndUpdate() {
  if (!std::exchange(updating_, false)) return;
  KeptWord word = KeptWord::Decode(Load(header_->word));
  word.kind = KeptWord::kWhole;
  Store(header_->word, word.Encode());
}

}  // namespace elasticdl::keep
