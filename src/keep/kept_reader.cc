#include "elasticdl/keep/kept_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "kept_layout.h"

namespace elasticdl::keep {

namespace {

// The size of a memory that was sealed (KeptState::Seal).
absl::StatusOr<size_t> SealedSize(const Fd& fd) {
  // Nothing but a memfd has seals. Only a memory that cannot shrink may be read
  // without fear.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  struct stat status = {};
  if (seals < 0 || (seals & kNeeded) != kNeeded ||
      fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<size_t>(status.st_size) < kFirstArray) {
    return absl::DataLossError("a kept memory is none, or not complete");
  }
  return static_cast<size_t>(status.st_size);
}

}  // namespace

absl::Status CheckOwner(const Fd& fd, int64_t worker_id, pid_t pid) {
  ELASTICDL_RETURN_IF_ERROR(SealedSize(fd).status());
  // Its owner may be at work in the rest of it.
  const auto word_at = [&](size_t offset) {
    int64_t word = -1;
    return pread(fd.get(), &word, sizeof(word), static_cast<off_t>(offset)) ==
                   sizeof(word)
               ? word
               : -1;
  };
  if (word_at(offsetof(KeptHeader, magic)) != static_cast<int64_t>(kMagic) ||
      word_at(offsetof(KeptHeader, worker_id)) != worker_id ||
      word_at(offsetof(KeptHeader, pid)) != pid) {
    return absl::DataLossError("it is the memory of another process");
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> OpenMemory(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  return fd;
}

absl::StatusOr<KeptReader> KeptReader::Open(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(const Fd fd, OpenMemory(path));
  return Open(fd);
}

absl::StatusOr<KeptReader> KeptReader::Open(const Fd& fd) {
  ELASTICDL_ASSIGN_OR_RETURN(const size_t bytes, SealedSize(fd));
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return ErrnoToStatus(errno, "map a kept memory");
  KeptReader reader(static_cast<const char*>(mapped), bytes);
  ELASTICDL_RETURN_IF_ERROR(reader.Check());
  return reader;
}

KeptReader::KeptReader(KeptReader&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)),
      bytes_(other.bytes_),
      facts_(std::move(other.facts_)),
      update_(other.update_) {}

KeptReader::~KeptReader() {
  if (begin_ != nullptr) munmap(const_cast<char*>(begin_), bytes_);
}

const KeptHeader& KeptReader::header() const {
  return *reinterpret_cast<const KeptHeader*>(begin_);
}

absl::Status KeptReader::Check() {
  const KeptHeader& header = this->header();
  if (header.magic != kMagic || header.num_arrays > kMostArrays) {
    return absl::DataLossError("a kept memory is of another program");
  }
  for (size_t i = 0; i < header.num_arrays; ++i) {
    const KeptArray& array = header.arrays[i];
    if (array.offset > bytes_ || array.bytes > bytes_ - array.offset ||
        array.offset % kPageBytes != 0) {
      return absl::DataLossError("a kept memory is not complete");
    }
  }
  const KeptWord word = KeptWord::Decode(header.word);
  if (word.kind != KeptWord::kWhole && word.kind != KeptWord::kUpdating) {
    return absl::NotFoundError("no state was whole");
  }
  const KeptNote& note = header.notes[word.note];
  if (note.num_totals > kMostTotals) {
    return absl::DataLossError("a kept memory counts too many workers");
  }
  facts_.step = word.step;
  facts_.lineage = note.lineage;
  facts_.learning_rate = note.learning_rate;
  for (size_t i = 0; i < note.num_totals; ++i) {
    facts_.totals.emplace_back(note.totals[i].worker_id,
                               note.totals[i].records);
  }
  if (word.kind == KeptWord::kWhole) return absl::OkStatus();
  update_.open = true;
  const uint64_t progress = header.progress;
  update_.done = progress >> 1;
  update_.torn = (progress & 1) != 0 ? uint64_t{header.count} : 0;
  return absl::OkStatus();
}

uint64_t KeptReader::layout() const { return header().layout; }

size_t KeptReader::num_arrays() const { return header().num_arrays; }

absl::Span<const char> KeptReader::array(size_t index) const {
  const KeptArray& array = header().arrays[index];
  return {begin_ + array.offset, array.bytes};
}

}  // namespace elasticdl::keep
