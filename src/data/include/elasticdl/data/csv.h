// Fields of CSV records (RFC 4180).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::data {

// The fields of one record as a CSV reader returns it: without the line's end,
// quotes removed, doubled quotes single. INVALID_ARGUMENT when a quote does not
// close or text follows a closing quote.
absl::StatusOr<std::vector<std::string>> ParseCsvRecord(
    absl::string_view record, char separator = ',');

// The opposite: quotes what needs it.
std::string FormatCsvRecord(const std::vector<std::string>& fields,
                            char separator = ',');

}  // namespace elasticdl::data
