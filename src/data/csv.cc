// Fields of CSV records.
#include "elasticdl/data/csv.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace elasticdl::data {
namespace {

absl::Status BadCsv(absl::string_view what, size_t at) {
  return absl::InvalidArgumentError(
      absl::StrCat("CSV record: ", what, " at byte ", at));
}

// Reads the quoted field whose opening quote is at `at`; moves behind it.
absl::StatusOr<std::string> TakeQuoted(absl::string_view record, size_t& at) {
  const size_t opening = at++;
  std::string field;
  while (at < record.size()) {
    const char c = record[at++];
    if (c != '"') {
      field.push_back(c);
    } else if (at < record.size() && record[at] == '"') {
      field.push_back('"');
      ++at;
    } else {
      return field;
    }
  }
  return BadCsv("a quoted field does not end, begun", opening);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCsvRecord(
    absl::string_view record, char separator) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    if (at < record.size() && record[at] == '"') {
      auto field = TakeQuoted(record, at);
      if (!field.ok()) return field.status();
      fields.push_back(*std::move(field));
      if (at < record.size() && record[at] != separator) {
        return BadCsv("text after a closing quote", at);
      }
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      fields.emplace_back(record.substr(at, end - at));
      at = end;
    }
    if (at >= record.size()) return fields;
    ++at;
  }
}

std::string FormatCsvRecord(const std::vector<std::string>& fields,
                            char separator) {
  std::string out;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) out.push_back(separator);
    // An empty line would be no record.
    const bool quote = field.find_first_of("\"\r\n") != std::string::npos ||
                       field.find(separator) != std::string::npos ||
                       (fields.size() == 1 && field.empty());
    if (quote) {
      absl::StrAppend(&out, "\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}),
                      "\"");
    } else {
      out += field;
    }
  }
  return out;
}

}  // namespace elasticdl::data
