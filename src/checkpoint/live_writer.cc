#include "live_writer.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "elasticdl/checkpoint/late_ledger.h"
#include "elasticdl/checkpoint/live_arrays.h"
#include "elasticdl/common/status.h"
#include "file_writer.h"
#include "wire.h"

namespace elasticdl::checkpoint::internal {
namespace {

// What is read of the arrays before it is written.
constexpr size_t kReadBytes = 1 << 20;

// The tensors of each file.
using Files = std::vector<absl::Span<const NamedTensor>>;

Files Divide(absl::Span<const NamedTensor> tensors, int64_t max_bytes) {
  std::vector<int64_t> sizes;
  for (const NamedTensor& tensor : tensors) {
    sizes.push_back(static_cast<int64_t>(tensor.bytes.size()));
  }
  Files files;
  size_t begin = 0;
  for (const size_t end : CutIntoFiles(sizes, max_bytes)) {
    files.push_back(tensors.subspan(begin, end - begin));
    begin = end;
  }
  return files;
}

// Files with consecutive tensors of a live snapshot. Thread-compatible.
class Lane {
 public:
  // The next file is number `first` of `count` of its kind.
  Lane(const std::string& folder, const char* kind, int64_t version,
       const Files& files, size_t first, size_t count) {
    for (size_t i = 0; i < files.size(); ++i) {
      File& file = files_.emplace_back();
      file.tensors = files[i];
      file.writer = std::make_unique<FileWriter>(
          folder, FormatShardName(kind, first + i, count));
      file.writer->Append(EncodeModelVersion(version));
    }
  }

  bool done() const { return file_ == files_.size(); }
  // Bytes of tensors that were written.
  int64_t position() const { return position_; }

  // Writes at most as much as `buffer` can hold.
  absl::Status WriteSome(LiveReader& live, absl::Span<char> buffer) {
    File& file = files_[file_];
    if (item_ == file.tensors.size()) {
      ++file_;
      item_ = 0;
      return absl::OkStatus();
    }
    const NamedTensor& tensor = file.tensors[item_];
    if (offset_ == 0) file.writer->Append(EncodeTensorHeader(tensor));
    const size_t size = std::min(buffer.size(), tensor.bytes.size() - offset_);
    ELASTICDL_RETURN_IF_ERROR(
        live.Read(tensor.bytes.data() + offset_, size, buffer.data()));
    file.writer->Append({buffer.data(), size});
    ELASTICDL_RETURN_IF_ERROR(file.writer->status());
    position_ += static_cast<int64_t>(size);
    offset_ += size;
    if (offset_ < tensor.bytes.size()) return absl::OkStatus();
    offset_ = 0;
    ++item_;
    return absl::OkStatus();
  }

  // The disk is waited for only when all is read.
  absl::Status Finish(Manifest& manifest) {
    for (File& file : files_) {
      ELASTICDL_ASSIGN_OR_RETURN(ManifestFile entry, file.writer->Finish());
      manifest.files.push_back(std::move(entry));
    }
    return absl::OkStatus();
  }

 private:
  struct File {
    absl::Span<const NamedTensor> tensors;
    std::unique_ptr<FileWriter> writer;
  };
  std::vector<File> files_;
  // Where it is.
  size_t file_ = 0;
  size_t item_ = 0;
  size_t offset_ = 0;
  int64_t position_ = 0;
};

std::vector<std::unique_ptr<Lane>> MakeLanes(const std::string& folder,
                                             const Snapshot& snapshot,
                                             int64_t max_bytes) {
  std::vector<std::unique_ptr<Lane>> lanes;
  const auto variables = Divide(snapshot.variables, max_bytes);
  lanes.push_back(std::make_unique<Lane>(folder, kVariables, snapshot.version,
                                         variables, 0, variables.size()));
  const absl::Span<const NamedTensor> slots = snapshot.slots;
  if (slots.empty()) return lanes;
  std::vector<Files> runs;
  size_t count = 0;
  const size_t length = slots.size() / snapshot.num_slot_runs;
  for (size_t i = 0; i < snapshot.num_slot_runs; ++i) {
    runs.push_back(Divide(slots.subspan(i * length, length), max_bytes));
    count += runs.back().size();
  }
  size_t first = 0;
  for (const auto& run : runs) {
    lanes.push_back(std::make_unique<Lane>(folder, kOptimizer, snapshot.version,
                                           run, first, count));
    first += run.size();
  }
  return lanes;
}

}  // namespace

absl::Status WriteLive(const std::string& folder, const Snapshot& snapshot,
                       int64_t max_bytes, Manifest& manifest) {
  const auto lanes = MakeLanes(folder, snapshot, max_bytes);
  const auto buffer = std::make_unique<char[]>(kReadBytes);
  while (true) {
    Lane* next = nullptr;
    for (const auto& lane : lanes) {
      if (lane->done()) continue;
      if (next == nullptr || lane->position() < next->position()) {
        next = lane.get();
      }
    }
    if (next == nullptr) break;
    ELASTICDL_RETURN_IF_ERROR(next->WriteSome(
        *snapshot.live, absl::MakeSpan(buffer.get(), kReadBytes)));
    if (snapshot.late == nullptr) continue;
    const auto answer = snapshot.late->Poll();
    if (answer.has_value()) ELASTICDL_RETURN_IF_ERROR(answer->status());
  }
  ELASTICDL_RETURN_IF_ERROR(snapshot.live->Finish());
  for (const auto& lane : lanes) {
    ELASTICDL_RETURN_IF_ERROR(lane->Finish(manifest));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::checkpoint::internal
