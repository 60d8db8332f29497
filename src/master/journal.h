// The master's journal: records appended to one file, read back by the next
// master of the same job (docs/design/0005-master-restart.md).
//
//   file    "EDLJRNL1", or "EDLJRNLX" when records are missing at its end; then
//           records
//   record  uint32 length, uint32 CRC-32C of the bytes, uint32 CRC-32C of
//           these two, the bytes of a v1::JournalRecord; all little endian
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/journal.pb.h"

namespace elasticdl::master {

// Thread-compatible. When Append returns, the kernel has the record: it
// survives the death of this process, but not of the machine.
class Journal {
 public:
  // Opens or creates the file; `replay` gets its records. An incomplete last
  // record is dropped. DATA_LOSS for a file that is not a journal, or has a bad
  // record before its end.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(
      const std::string& path, std::vector<v1::JournalRecord>& replay);

  // When it fails (the disk is full), nothing of the record is left, and the
  // file is marked as incomplete. From then on every Append fails, until
  // Replace.
  absl::Status Append(const v1::JournalRecord& record);
  // Replaces all records by these, in one step.
  absl::Status Replace(const std::vector<v1::JournalRecord>& records);

  // It has all records. After Open: all records of the previous master.
  bool complete() const { return complete_; }
  // It is incomplete or has grown too long: call Replace with records of the
  // same state in fewer bytes.
  bool WantsReplace() const;
  int64_t bytes() const { return bytes_; }

 private:
  Journal(std::string path, Fd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}
  void MarkIncomplete();

  const std::string path_;
  Fd fd_;
  int64_t bytes_ = 0;
  // After the last Replace.
  int64_t least_bytes_ = 0;
  bool complete_ = true;
};

}  // namespace elasticdl::master
