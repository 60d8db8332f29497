// elasticdl audit: what the files of --ledger_audit and --ps_audit prove.
#pragma once

#include <string>
#include <vector>

namespace elasticdl::cli {

// The exit code: 0 if each record is in the model once, 1 if not, 2 for files
// that cannot be read.
int RunAudit(const std::vector<std::string>& args);

}  // namespace elasticdl::cli
