// Reader of CSV and plain text files.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "data_readers.h"
#include "elasticdl/common/status.h"
#include "elasticdl/data/csv.h"
#include "text_index.h"

namespace elasticdl::data::internal {
namespace {

using Header = TextOptions::Header;
using Fields = std::vector<std::string>;

class TextReader : public DataReader {
 public:
  TextReader(std::vector<Shard> shards, std::map<std::string, TextIndex> files,
             Metadata metadata)
      : shards_(std::move(shards)),
        files_(std::move(files)),
        metadata_(std::move(metadata)) {}

  absl::StatusOr<std::vector<Shard>> CreateShards() override { return shards_; }

  absl::StatusOr<RecordBatch> Read(const std::string& name, int64_t begin,
                                   int64_t end) override {
    const auto it = files_.find(name);
    if (it == files_.end()) {
      return absl::NotFoundError(
          absl::StrCat("read ", name, ": no such shard"));
    }
    const TextIndex& file = it->second;
    ELASTICDL_RETURN_IF_ERROR(CheckRange(name, begin, end, file.num_records()));
    RecordBatch batch;
    ELASTICDL_ASSIGN_OR_RETURN(batch.records(), file.Read(begin, end));
    batch.Hold(file.file());
    return batch;
  }

  const Metadata& metadata() const override { return metadata_; }

 private:
  const std::vector<Shard> shards_;
  const std::map<std::string, TextIndex> files_;
  const Metadata metadata_;
};

bool IsNumber(absl::string_view text) {
  double value = 0;
  return absl::SimpleAtod(text, &value);
}

// The first records of a file as fields, at most `count`.
absl::StatusOr<std::vector<Fields>> FirstRows(const std::string& path,
                                              const RecordSyntax& syntax,
                                              size_t count) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  absl::string_view rest = SkipByteOrderMark(file->bytes());
  std::vector<Fields> rows;
  while (rows.size() < count && !rest.empty()) {
    auto record = TakeRecord(rest, syntax);
    if (!record.ok()) {
      return Annotate(record.status(), absl::StrCat("read ", path));
    }
    if (record->data() == nullptr) break;
    auto fields = ParseCsvRecord(*record, syntax.separator);
    if (!fields.ok()) {
      return Annotate(fields.status(),
                      absl::StrCat("read ", path, ": record ", rows.size()));
    }
    rows.push_back(*std::move(fields));
  }
  return rows;
}

// Distinct names, none of them a number.
bool AreNames(const Fields& fields) {
  const bool all_names =
      std::none_of(fields.begin(), fields.end(), [](const std::string& name) {
        return absl::StripAsciiWhitespace(name).empty() || IsNumber(name);
      });
  return all_names &&
         std::set<std::string>(fields.begin(), fields.end()).size() ==
             fields.size();
}

// Names above a row that has a number somewhere.
bool LooksLikeHeader(const std::vector<Fields>& rows) {
  return rows.size() > 1 && AreNames(rows[0]) &&
         std::any_of(rows[1].begin(), rows[1].end(), IsNumber);
}

// Whether the file begins with a header, and the names of the columns.
struct HeaderFacts {
  bool present = false;
  // It has one row only, and that could be a header.
  bool only_names = false;
  Fields columns;
};

Fields Trimmed(const Fields& fields) {
  Fields trimmed;
  for (const std::string& field : fields) {
    trimmed.emplace_back(absl::StripAsciiWhitespace(field));
  }
  return trimmed;
}

absl::StatusOr<HeaderFacts> FindHeader(const std::string& path,
                                       const TextOptions& options,
                                       const RecordSyntax& syntax) {
  HeaderFacts facts;
  facts.columns = options.columns;
  facts.present = options.header == Header::kYes;
  if (!options.csv || options.header == Header::kNo) return facts;
  ELASTICDL_ASSIGN_OR_RETURN(const auto rows, FirstRows(path, syntax, 2));
  if (options.header == Header::kAuto) {
    facts.present = LooksLikeHeader(rows);
    facts.only_names = rows.size() == 1 && AreNames(rows[0]);
  }
  if ((facts.present || facts.only_names) && !rows.empty()) {
    facts.columns = Trimmed(rows[0]);
  }
  return facts;
}

// A single row of names is a header when another file has the same one, and
// when there is nothing else: no model learns from it, and the error that
// follows is better than a record that is none. Else it is a record.
void DecideSingleRows(const TextOptions& options,
                      std::vector<HeaderFacts>& files) {
  const auto with_header =
      std::find_if(files.begin(), files.end(),
                   [](const HeaderFacts& file) { return file.present; });
  const bool nothing_else =
      std::all_of(files.begin(), files.end(),
                  [](const HeaderFacts& file) { return file.only_names; });
  for (HeaderFacts& file : files) {
    if (!file.only_names) continue;
    file.present = with_header != files.end()
                       ? file.columns == with_header->columns
                       : nothing_else;
    if (!file.present) file.columns = options.columns;
  }
}

absl::StatusOr<std::vector<HeaderFacts>> FindHeaders(
    const std::vector<std::string>& paths, const TextOptions& options,
    const RecordSyntax& syntax) {
  std::vector<HeaderFacts> headers;
  for (const std::string& path : paths) {
    ELASTICDL_ASSIGN_OR_RETURN(HeaderFacts facts,
                               FindHeader(path, options, syntax));
    headers.push_back(std::move(facts));
  }
  DecideSingleRows(options, headers);
  return headers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataReader>> OpenTextReader(
    const std::string& origin, const std::vector<std::string>& paths,
    const TextOptions& options) {
  const RecordSyntax syntax{options.csv, options.separator};
  std::vector<Shard> shards;
  std::map<std::string, TextIndex> files;
  Metadata metadata;
  ELASTICDL_ASSIGN_OR_RETURN(std::vector<HeaderFacts> headers,
                             FindHeaders(paths, options, syntax));
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    HeaderFacts& header = headers[i];
    ELASTICDL_ASSIGN_OR_RETURN(TextIndex index,
                               TextIndex::Build(path, syntax, header.present));
    if (index.num_records() == 0) continue;
    if (shards.empty()) {
      metadata.column_names = std::move(header.columns);
    } else if (metadata.column_names != header.columns) {
      return absl::InvalidArgumentError(
          absl::StrCat("open data '", origin, "': the columns of ", path,
                       " differ from those of ", shards.front().name));
    }
    shards.push_back({path, 0, index.num_records()});
    files.emplace(path, std::move(index));
  }
  if (shards.empty()) return NoRecords(origin);
  return std::make_unique<TextReader>(std::move(shards), std::move(files),
                                      std::move(metadata));
}

}  // namespace elasticdl::data::internal
