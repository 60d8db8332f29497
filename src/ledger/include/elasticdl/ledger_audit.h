// What a file of --ledger_audit proves (docs/formats.md).
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl {

struct AuditEpoch {
  // That are in the model, however often.
  int64_t records = 0;
  // That are in it more than once.
  int64_t twice = 0;
};

struct AuditResult {
  // By number, from 0.
  std::map<int64_t, AuditEpoch> epochs;
  int64_t records = 0;
  int64_t twice = 0;
  // Where the first few are that are there twice.
  std::vector<std::string> places;
};

// Positions [begin, end), reported at a step.
struct AuditRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 0;
};

// Thread-compatible. Its memory grows with the lines that it reads, about a
// hundred bytes each.
class LedgerAudit {
 public:
  // Reads a file after those before it: the audit of a job that continues
  // another one. INVALID_ARGUMENT: a line is no line of an audit; the message
  // has its number.
  absl::Status Read(std::istream& in);
  AuditResult Check() const;

  // What is in the model, in the order of the lines, by epoch and shard.
  using Ranges =
      std::map<std::pair<int64_t, std::string>, std::vector<AuditRange>>;
  const Ranges& ranges() const { return ranges_; }

 private:
  absl::Status AddLine(const std::string& text);

  Ranges ranges_;
};

}  // namespace elasticdl
