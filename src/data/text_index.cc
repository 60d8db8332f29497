// See text_index.h.
#include "text_index.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"

namespace elasticdl::data::internal {
namespace {

// Position of the line end of the record that starts `text`, or npos when a
// quote never closes; text.size() when the record ends with the text.
size_t FindQuotedEnd(absl::string_view text, char separator) {
  enum { kFieldStart, kPlain, kQuoted, kClosed } state = kFieldStart;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (state == kQuoted) {
      if (c == '"') state = kClosed;
    } else if (c == '\n') {
      return i;
    } else if (c == '"' && state != kPlain) {
      state = kQuoted;  // opens, or was the first of a doubled quote
    } else {
      state = c == separator ? kFieldStart : kPlain;
    }
  }
  return state == kQuoted ? absl::string_view::npos : text.size();
}

size_t FindEnd(absl::string_view text, const RecordSyntax& syntax) {
  // Most records have no quotes, and memchr is faster than looking at each
  // character.
  const void* newline = std::memchr(text.data(), '\n', text.size());
  const size_t end = newline == nullptr
                         ? text.size()
                         : static_cast<size_t>(
                               static_cast<const char*>(newline) - text.data());
  if (!syntax.csv || std::memchr(text.data(), '"', end) == nullptr) return end;
  return FindQuotedEnd(text, syntax.separator);
}

}  // namespace

absl::string_view SkipByteOrderMark(absl::string_view text) {
  constexpr absl::string_view kMark = "\xef\xbb\xbf";
  if (absl::StartsWith(text, kMark)) text.remove_prefix(kMark.size());
  return text;
}

absl::StatusOr<absl::string_view> TakeRecord(absl::string_view& rest,
                                             const RecordSyntax& syntax) {
  while (!rest.empty()) {
    const size_t end = FindEnd(rest, syntax);
    if (end == absl::string_view::npos) {
      return absl::InvalidArgumentError("a quoted field does not end");
    }
    absl::string_view record = rest.substr(0, end);
    rest.remove_prefix(end < rest.size() ? end + 1 : end);
    if (!record.empty() && record.back() == '\r') record.remove_suffix(1);
    // An empty line is a record of text, but none of CSV.
    if (!record.empty() || !syntax.csv) return record;
  }
  return absl::string_view();
}

absl::StatusOr<TextIndex> TextIndex::Build(const std::string& path,
                                           const RecordSyntax& syntax,
                                           bool skip_header) {
  TextIndex index;
  index.syntax_ = syntax;
  ELASTICDL_ASSIGN_OR_RETURN(index.file_, MappedFile::Open(path));
  const absl::string_view text = index.file_->bytes();
  absl::string_view rest = SkipByteOrderMark(text);
  bool header = skip_header;
  while (!rest.empty()) {
    const size_t offset = text.size() - rest.size();
    const auto record = TakeRecord(rest, syntax);
    if (!record.ok()) {
      return Annotate(
          record.status(),
          absl::StrCat("read ", path, ": record ", index.num_records_,
                       " at byte offset ", offset));
    }
    if (record->data() == nullptr) break;
    if (header) {
      header = false;
      continue;
    }
    if (index.num_records_ % kStride == 0) index.offsets_.push_back(offset);
    ++index.num_records_;
  }
  return index;
}

absl::StatusOr<std::vector<absl::string_view>> TextIndex::Read(
    int64_t begin, int64_t end) const {
  std::vector<absl::string_view> records;
  if (begin >= end) return records;
  records.reserve(static_cast<size_t>(end - begin));
  const int64_t stride = begin / kStride;
  absl::string_view rest =
      file_->bytes().substr(offsets_[static_cast<size_t>(stride)]);
  for (int64_t i = stride * kStride; i < end; ++i) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto record, TakeRecord(rest, syntax_));
    if (i >= begin) records.push_back(record);
  }
  return records;
}

}  // namespace elasticdl::data::internal
