// What the files of --ps_audit prove (docs/formats.md): that each record which
// was committed is in each bucket of the model once, whichever servers had the
// bucket meanwhile and whichever copy of a part was the primary.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/ledger_audit.h"

namespace elasticdl {

class ServerHistory;

struct ServerAuditResult {
  int64_t files = 0;
  int64_t parts = 0;
  // What is wrong, and a line for each of the first few.
  int64_t findings = 0;
  std::vector<std::string> places;
  // Records that a bucket has and that were never committed: the most of any
  // bucket. Findings, too, unless the job was `partial`.
  int64_t not_committed = 0;
};

// Thread-compatible. Its memory grows with the lines that it reads, about two
// hundred bytes each.
class ServerAudit {
 public:
  ServerAudit();
  ~ServerAudit();

  // A file of one run of a job, in any order; `name` is for messages. A last
  // line without its end is passed over: the server was killed there.
  // INVALID_ARGUMENT: a line is no line of such an audit, or of another run;
  // the message has its number.
  absl::Status Read(const std::string& name, std::istream& in);

  // Compares with the ledger of the same job. `partial`: training ended early,
  // so records that were pushed and not reported may be there once.
  ServerAuditResult Check(const LedgerAudit& ledger, bool partial) const;

 private:
  std::unique_ptr<ServerHistory> history_;
};

}  // namespace elasticdl
