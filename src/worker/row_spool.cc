#include "row_spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::worker {

// A file without a name, and its bytes once they are mapped.
class RowSpool::File {
 public:
  explicit File(Fd fd) : fd_(std::move(fd)) {}
  ~File() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_.get(); }
  absl::StatusOr<const char*> Map(size_t size) {
    void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_.get(), 0);
    if (data == MAP_FAILED) return ErrnoToStatus(errno, "map rows");
    data_ = data;
    size_ = size;
    return static_cast<const char*>(data);
  }

 private:
  Fd fd_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

RowSpool::RowSpool(std::unique_ptr<File> file) : file_(std::move(file)) {}

absl::StatusOr<RowSpool> RowSpool::Create(const std::string& folder) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(folder));
  std::string path = JoinPath(folder, ".rows-XXXXXX");
  Fd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("create ", path));
  if (unlink(path.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("unlink ", path));
  }
  return RowSpool(std::make_unique<File>(std::move(fd)));
}

void RowSpool::BeginTable(const std::string& name, int64_t dim,
                          const std::string& initializer,
                          const std::vector<std::string>& slots) {
  checkpoint::TableRows& table = tables_.emplace_back();
  table.name = name;
  table.dim = dim;
  table.initializer = initializer;
  for (const std::string& slot : slots) table.slots.push_back({slot, {}});
}

absl::Status RowSpool::Write(const void* data, size_t bytes) {
  ELASTICDL_RETURN_IF_ERROR(WriteAll(file_->fd(),
                                     {static_cast<const char*>(data), bytes},
                                     "rows for a checkpoint"));
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status RowSpool::Add(absl::Span<const int64_t> ids, const float* values,
                           absl::Span<const float* const> slots,
                           absl::Span<const int64_t> ranks) {
  const checkpoint::TableRows& table = tables_.back();
  const size_t bytes =
      ids.size() * static_cast<size_t>(table.dim) * sizeof(float);
  // Ids lie at multiples of their size.
  constexpr char kZeros[sizeof(int64_t)] = {};
  const size_t beyond = bytes_ % sizeof(int64_t);
  if (beyond > 0) {
    ELASTICDL_RETURN_IF_ERROR(Write(kZeros, sizeof(int64_t) - beyond));
  }
  batches_.push_back({tables_.size() - 1, bytes_, ids.size(), ranks.size()});
  ELASTICDL_RETURN_IF_ERROR(Write(ids.data(), ids.size() * sizeof(int64_t)));
  ELASTICDL_RETURN_IF_ERROR(
      Write(ranks.data(), ranks.size() * sizeof(int64_t)));
  ELASTICDL_RETURN_IF_ERROR(Write(values, bytes));
  for (const float* slot : slots) {
    ELASTICDL_RETURN_IF_ERROR(Write(slot, bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const void>> RowSpool::AddTo(
    checkpoint::Snapshot& into) && {
  const char* data = nullptr;
  if (bytes_ > 0) {
    ELASTICDL_ASSIGN_OR_RETURN(data, file_->Map(bytes_));
  }
  size_t next = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const bool empty = next == batches_.size() || batches_[next].table != t;
    // It keeps its name and dim.
    if (empty) into.tables.push_back(tables_[t]);
    for (; next < batches_.size() && batches_[next].table == t; ++next) {
      const Batch& batch = batches_[next];
      const size_t values = batch.rows * static_cast<size_t>(tables_[t].dim);
      checkpoint::TableRows part = tables_[t];
      const auto* ids = reinterpret_cast<const int64_t*>(data + batch.at);
      part.ids = {ids, batch.rows};
      part.ranks = {ids + batch.rows, batch.ranks};
      const auto* floats =
          reinterpret_cast<const float*>(ids + batch.rows + batch.ranks);
      part.values = {floats, values};
      for (checkpoint::TableRows::Slot& slot : part.slots) {
        floats += values;
        slot.values = {floats, values};
      }
      into.tables.push_back(std::move(part));
    }
  }
  return std::shared_ptr<const void>(std::move(file_));
}

}  // namespace elasticdl::worker
