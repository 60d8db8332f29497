// Layout of an area: header | a ShmRank per rank | a part per rank,
// page-aligned.
#include "shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::collective {
namespace {

constexpr size_t kPage = 4096;

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
size_t RanksOffset() { return RoundUp(sizeof(ShmHeader), kShmLine); }
size_t PartsOffset(int size) {
  return RoundUp(RanksOffset() + size * sizeof(ShmRank), kPage);
}
size_t AreaBytes(const ShmSegment::Shape& shape) {
  return PartsOffset(shape.size) +
         RoundUp(shape.size * shape.part_bytes, kPage);
}

// Enough for the deaths until a new member joins, which makes a new segment.
constexpr uint32_t kAreas = 3;

// Whether the kernel gives no more memory than there is. Only then can a page
// of a memfd be missing when it is touched, which is a SIGBUS; otherwise there
// is no limit but that of the whole process.
bool StrictMemory() {
  const absl::StatusOr<std::string> mode =
      ReadFile("/proc/sys/vm/overcommit_memory");
  return !mode.ok() || absl::StartsWith(*mode, "2");
}

// A file that is larger is refused with a signal that kills (SIGXFSZ).
size_t MostFileBytes() {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0
             ? limit.rlim_cur
             : std::numeric_limits<size_t>::max();
}

// Zeroing megabytes that a small model never touches would be a quarter of the
// time that survivors need for their next world.
absl::Status Allocate(int fd, size_t bytes, bool strict) {
  const auto size = static_cast<off_t>(bytes);
  int error = 0;
  if (strict) {
    error = posix_fallocate(fd, 0, size);
  } else if (ftruncate(fd, size) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  return ErrnoToStatus(
      error, absl::StrCat("allocate ", bytes, " bytes of shared memory"));
}

static_assert(std::atomic<uint32_t>::is_always_lock_free,
              "a futex is a plain word");
static_assert(sizeof(ShmRank) % kShmLine == 0);

}  // namespace

ShmMapping::~ShmMapping() { munmap(base, bytes); }

absl::StatusOr<std::shared_ptr<ShmMapping>> ShmSegment::Map(Fd fd,
                                                            size_t bytes) {
  // Not populated: a small model uses a small part, and all members map it on
  // the way to the next step after a death.
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return ErrnoToStatus(
        errno, absl::StrCat("map ", bytes, " bytes of shared memory"));
  }
  return std::make_shared<ShmMapping>(std::move(fd), static_cast<char*>(base),
                                      bytes);
}

ShmSegment::ShmSegment(std::shared_ptr<ShmMapping> mapping, const Shape& shape,
                       uint32_t area, uint32_t areas)
    : mapping_(std::move(mapping)),
      shape_(shape),
      area_(area),
      areas_(areas),
      base_(mapping_->base + area * AreaBytes(shape)),
      ranks_(reinterpret_cast<ShmRank*>(base_ + RanksOffset())),
      parts_(base_ + PartsOffset(shape.size)) {}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Create(
    const Shape& shape, const std::string& id, bool may_shrink) {
  static const bool strict = StrictMemory();
  const size_t most = MostFileBytes();
  const size_t area = AreaBytes(shape);
  // Memory that is allocated at once costs something.
  const bool several = may_shrink && !strict && kAreas * area <= most;
  const uint32_t areas = several ? kAreas : 1;
  if (area > most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a world of ", shape.size, " members on this host needs ", area,
        " bytes of shared memory, but the limit for files is ", most,
        " (ulimit -f); raise it, or use --collective=tcp"));
  }
  Fd fd(memfd_create("elasticdl-world", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoToStatus(errno, "make shared memory");
  const size_t bytes = areas * area;
  ELASTICDL_RETURN_IF_ERROR(Allocate(fd.get(), bytes, strict));
  // Nobody can cut it under the others.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoToStatus(errno, "seal shared memory");
  }
  ELASTICDL_ASSIGN_OR_RETURN(auto mapping, Map(std::move(fd), bytes));
  std::unique_ptr<ShmSegment> segment(
      new ShmSegment(std::move(mapping), shape, 0, areas));
  // The rest of the new memory is zero, which is the initial state.
  ShmHeader& header = segment->header();
  std::memcpy(header.id, id.data(), kShmIdBytes);
  header.generation = shape.generation;
  header.size = static_cast<uint32_t>(shape.size);
  header.part_bytes = static_cast<uint32_t>(shape.part_bytes);
  header.areas = areas;
  return segment;
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Attach(
    const Shape& shape, const std::string& id, int pid, int fd_number) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd_number);
  Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    // ENOENT: that process has died, or has given up this world.
    const int error = errno;
    const std::string what = absl::StrCat("open shared memory ", path);
    if (error == ENOENT) {
      return absl::AbortedError(
          absl::StrCat(what, ": the process that made it is gone"));
    }
    return ErrnoToStatus(error, what);
  }
  struct stat file;
  if (fstat(fd.get(), &file) != 0) return ErrnoToStatus(errno, path);
  const absl::Status other = absl::AbortedError(
      absl::StrCat(path, " is not the shared memory of this world"));
  const auto bytes = static_cast<size_t>(file.st_size);
  const size_t areas = bytes / AreaBytes(shape);
  if (!S_ISREG(file.st_mode) || areas == 0) return other;
  ELASTICDL_ASSIGN_OR_RETURN(auto mapping, Map(std::move(fd), bytes));
  // Only its maker keeps it open for others.
  mapping->fd.Reset();
  std::unique_ptr<ShmSegment> segment(new ShmSegment(
      std::move(mapping), shape, 0, static_cast<uint32_t>(areas)));
  const ShmHeader& header = segment->header();
  if (std::memcmp(header.id, id.data(), kShmIdBytes) != 0 ||
      header.generation != shape.generation ||
      header.size != static_cast<uint32_t>(shape.size) ||
      header.part_bytes != shape.part_bytes || header.areas != areas) {
    return other;
  }
  return segment;
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Next(
    int64_t generation) {
  if (!HasNext()) {
    return absl::FailedPreconditionError("no shared memory is left");
  }
  std::unique_ptr<ShmSegment> next(
      new ShmSegment(mapping_, shape_, area_ + 1, areas_));
  int64_t owner = 0;
  if (!next->header().generation.compare_exchange_strong(owner, generation) &&
      owner != generation) {
    return absl::AbortedError(absl::StrCat(
        "world ", owner, " has the shared memory of world ", generation));
  }
  return next;
}

}  // namespace elasticdl::collective
