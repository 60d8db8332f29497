#include "elasticdl/keep/kept_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "kept_layout.h"

namespace elasticdl::keep {

absl::StatusOr<KeptReader> KeptReader::Open(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  return Open(fd);
}

absl::StatusOr<KeptReader> KeptReader::Open(const Fd& fd) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  struct stat status = {};
  // Only a memory that cannot shrink may be read without fear.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      fstat(fd.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) < kFirstArray) {
    return absl::DataLossError("a kept memory is none, or not complete");
  }
  const auto bytes = static_cast<size_t>(status.st_size);
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
    if (array.offset > bytes_ || array.bytes > bytes_ - array.offset) {
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
