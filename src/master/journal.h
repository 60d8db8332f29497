// The master's journal: records appended to one file, read back by the next
// master of the same job (docs/design/0005-master-restart.md).
//
//   file    "EDLJRNL1", then records
//   record  uint32 length, uint32 CRC-32C of the bytes, uint32 CRC-32C of
//           these two, the bytes of a v1::JournalRecord; all little endian
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/v1/journal.pb.h"

namespace elasticdl::master {

// Thread-compatible. A record is with the kernel when Append returns: it
// outlives this process, though not the machine.
class Journal {
 public:
  // Opens or creates the file; `replay` gets what it holds. A last record that
  // was cut off in the middle is dropped. DATA_LOSS for a file that is no
  // journal, or has a bad record before its end.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(
      const std::string& path, std::vector<v1::JournalRecord>& replay);

  absl::Status Append(const v1::JournalRecord& record);

 private:
  Journal(std::string path, Fd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  const std::string path_;
  const Fd fd_;
};

}  // namespace elasticdl::master
