// Chooses the reader for an origin.
#include "elasticdl/data/reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data_readers.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/inspect.h"
#include "file_list.h"
#include "idx_file.h"

namespace elasticdl::data {
namespace {

constexpr absl::string_view kSyntheticPrefix = "synthetic:";

std::string Param(const ReaderParams& params, const std::string& name,
                  const std::string& fallback) {
  const auto it = params.find(name);
  return it == params.end() ? fallback : it->second;
}

bool IsSeparated(absl::string_view path) {
  return absl::EndsWithIgnoreCase(path, ".csv") ||
         absl::EndsWithIgnoreCase(path, ".tsv");
}
bool IsPlainText(absl::string_view path) {
  return absl::EndsWithIgnoreCase(path, ".txt");
}

std::string GuessType(const std::string& origin) {
  if (absl::StartsWith(origin, kSyntheticPrefix)) return "synthetic";
  if (IsDirectory(origin)) {
    const auto names = ListDirectory(origin);
    if (!names.ok()) return "recordio";
    const bool csv = std::any_of(names->begin(), names->end(), IsSeparated);
    const bool text = std::any_of(names->begin(), names->end(), IsPlainText);
    return csv ? "csv" : text ? "text" : "recordio";
  }
  if (IsSeparated(origin)) return "csv";
  if (IsPlainText(origin)) return "text";
  if (internal::LooksLikeIdx(origin)) return "idx";
  return "recordio";
}

absl::StatusOr<char> ParseSeparator(const std::string& text) {
  if (text == "\\t" || absl::EqualsIgnoreCase(text, "tab")) return '\t';
  if (text.size() == 1 && text != "\"" && text != "\n") return text[0];
  return absl::InvalidArgumentError(absl::StrCat(
      "data_reader_params: sep='", text, "' is not one character"));
}

// "['a', 'b']" or "a,b".
std::vector<std::string> ParseNames(const std::string& text) {
  std::vector<std::string> names;
  for (const absl::string_view name :
       absl::StrSplit(text, absl::ByAnyChar("[]()'\", "), absl::SkipEmpty())) {
    names.emplace_back(name);
  }
  return names;
}

absl::StatusOr<internal::TextOptions> ParseTextOptions(
    const std::string& origin, const ReaderParams& params, bool csv) {
  using Header = internal::TextOptions::Header;
  internal::TextOptions options;
  options.csv = csv;
  options.columns = ParseNames(Param(params, "columns", ""));
  const bool tabs = absl::EndsWithIgnoreCase(origin, ".tsv");
  ELASTICDL_ASSIGN_OR_RETURN(
      options.separator,
      ParseSeparator(Param(params, "sep", tabs ? "\t" : ",")));
  const std::string header =
      absl::AsciiStrToLower(Param(params, "header", csv ? "auto" : "false"));
  if (header == "auto") {
    options.header = Header::kAuto;
  } else if (header == "true" || header == "false") {
    options.header = header == "true" ? Header::kYes : Header::kNo;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("data_reader_params: header='", header,
                     "', expected true, false or auto"));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<DataReader>> OpenText(const std::string& origin,
                                                     const ReaderParams& params,
                                                     bool csv) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto options,
                             ParseTextOptions(origin, params, csv));
  ELASTICDL_ASSIGN_OR_RETURN(
      const auto files, ListFiles(origin, [csv](const std::string& path) {
        return csv ? IsSeparated(path) : IsPlainText(path);
      }));
  return internal::OpenTextReader(origin, files, options);
}

absl::StatusOr<std::unique_ptr<DataReader>> OpenRecordIo(
    const std::string& origin) {
  ELASTICDL_ASSIGN_OR_RETURN(auto files, ListRecordIoFiles(origin));
  return internal::OpenRecordIoReader(origin, files);
}

// "synthetic:records=N,bytes=B": the same keys may stand in params.
absl::StatusOr<std::unique_ptr<DataReader>> OpenSynthetic(
    const std::string& origin, const ReaderParams& params) {
  internal::SyntheticOptions options;
  int64_t seed = 0;
  const std::map<std::string, int64_t*> known = {{"records", &options.records},
                                                 {"shards", &options.shards},
                                                 {"seed", &seed},
                                                 {"bytes", &options.bytes},
                                                 {"image", &options.image},
                                                 {"classes", &options.classes}};
  ReaderParams all = params;
  absl::string_view text = origin;
  if (absl::StartsWith(text, kSyntheticPrefix)) {
    text.remove_prefix(kSyntheticPrefix.size());
    for (const absl::string_view part :
         absl::StrSplit(text, ',', absl::SkipWhitespace())) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      if (known.count(pair.first) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "open data '", origin, "': unknown '", pair.first,
            "', expected bytes, classes, image, records, seed or shards"));
      }
      all[pair.first] = pair.second;
    }
  }
  for (const auto& [name, target] : known) {
    const auto it = all.find(name);
    if (it == all.end()) continue;
    if (!absl::SimpleAtoi(it->second, target) || *target < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("open data '", origin, "': ", name, "='", it->second,
                       "' is not a natural number"));
    }
  }
  options.seed = static_cast<uint64_t>(seed);
  return internal::OpenSyntheticReader(origin, options);
}

absl::StatusOr<std::unique_ptr<DataReader>> OpenIdx(
    const std::string& origin, const ReaderParams& params) {
  std::string labels = Param(params, "labels", "");
  if (labels.empty()) labels = internal::FindIdxLabels(origin);
  return internal::OpenIdxReader(origin, labels,
                                 Param(params, "raw", "false") == "true");
}

}  // namespace

namespace internal {

absl::Status NoRecords(absl::string_view origin) {
  return absl::InvalidArgumentError(
      absl::StrCat("open data '", origin, "': the data set has no records"));
}

absl::Status CheckRange(absl::string_view name, int64_t begin, int64_t end,
                        int64_t count) {
  if (0 <= begin && begin <= end && end <= count) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("read ", name, ": records [", begin,
                                            ", ", end, ") of a shard with ",
                                            count, " records"));
}

}  // namespace internal

absl::StatusOr<ReaderParams> ParseReaderParams(absl::string_view text) {
  ReaderParams params;
  for (absl::string_view part :
       absl::StrSplit(text, ';', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(pair.first);
    if (key.empty() || !absl::StrContains(part, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat("--data_reader_params: '", part, "' is not key=value"));
    }
    params[std::string(key)] =
        std::string(absl::StripAsciiWhitespace(pair.second));
  }
  return params;
}

absl::StatusOr<std::unique_ptr<DataReader>> OpenDataReader(
    const std::string& origin, const ReaderParams& params) {
  if (origin.empty()) {
    return absl::InvalidArgumentError("open data '': the path is empty");
  }
  const std::string asked = Param(params, "reader_type", "");
  const std::string type =
      asked.empty() ? GuessType(origin) : absl::AsciiStrToLower(asked);
  if (type == "recordio") return OpenRecordIo(origin);
  if (type == "csv") return OpenText(origin, params, true);
  if (type == "text") return OpenText(origin, params, false);
  if (type == "idx") return OpenIdx(origin, params);
  if (type == "synthetic") return OpenSynthetic(origin, params);
  return absl::InvalidArgumentError(
      absl::StrCat("data_reader_params: unknown reader_type '", asked,
                   "', expected RecordIO, CSV, Text, IDX or Synthetic"));
}

}  // namespace elasticdl::data
