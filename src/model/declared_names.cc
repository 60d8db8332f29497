#include "declared_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/suggest.h"

namespace elasticdl::model {
namespace {

// More names than these do not help to find a slip.
constexpr size_t kMostNames = 12;

bool IsWordChar(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Goes through a source without comments, word by word.
class Scanner {
 public:
  explicit Scanner(absl::string_view text) : text_(text) {}

  std::vector<std::string> Scan();

 private:
  // The end of the text in quotes, or of the preprocessor line, that begins
  // here.
  size_t SkipQuoted(size_t i) const;
  size_t SkipLine(size_t i) const;
  void OnWord(size_t begin, size_t end);
  void OnOther(char c);
  void Add(absl::string_view name);
  // Words here are declarations, not code or members.
  bool outside() const { return hidden_ == 0 && parentheses_ == 0; }

  const absl::string_view text_;
  // Of the braces around this place: does it hide what is in it?
  std::vector<bool> braces_;
  int hidden_ = 0;
  int parentheses_ = 0;
  // Of the present statement: its first word and its last, and whether a value
  // follows.
  std::string first_;
  std::string last_;
  bool has_value_ = false;
  std::vector<std::string> names_;
};

std::vector<std::string> Scanner::Scan() {
  bool line_begins = true;
  for (size_t i = 0; i < text_.size();) {
    const char c = text_[i];
    if (line_begins && c == '#') {
      i = SkipLine(i);
    } else if (c == '"' || c == '\'') {
      i = SkipQuoted(i);
    } else if (IsWordChar(c)) {
      const size_t begin = i;
      while (i < text_.size() && IsWordChar(text_[i])) ++i;
      OnWord(begin, i);
    } else {
      OnOther(c);
      ++i;
    }
    if (!absl::ascii_isspace(c)) line_begins = false;
    if (c == '\n' || c == '#') line_begins = true;
  }
  return names_;
}

size_t Scanner::SkipQuoted(size_t i) const {
  const char quote = text_[i];
  for (++i; i < text_.size() && text_[i] != quote; ++i) {
    if (text_[i] == '\\') ++i;
    if (i < text_.size() && text_[i] == '\n') break;
  }
  return std::min(i + 1, text_.size());
}

size_t Scanner::SkipLine(size_t i) const {
  while (i < text_.size() && (text_[i] != '\n' || text_[i - 1] == '\\')) ++i;
  return i;
}

void Scanner::OnWord(size_t begin, size_t end) {
  const absl::string_view word = text_.substr(begin, end - begin);
  if (first_.empty()) first_ = std::string(word);
  const std::string before = last_;
  last_ = std::string(word);
  // torch::nn is a name of something else, Net::forward one of a member.
  const bool qualified = begin >= 2 && text_.substr(begin - 2, 2) == "::";
  if (hidden_ > 0 || has_value_ || qualified) return;
  if (before == "TORCH_MODULE") return Add(word);
  if (parentheses_ > 0) return;
  if (before == "struct" || before == "class") return Add(word);
  size_t next = end;
  while (next < text_.size() && absl::ascii_isspace(text_[next])) ++next;
  const bool called = next < text_.size() && text_[next] == '(';
  // A function has a type before its name; a macro has none.
  if (called && !before.empty()) Add(word);
}

void Scanner::OnOther(char c) {
  if (c == '(') ++parentheses_;
  if (c == ')') parentheses_ = std::max(0, parentheses_ - 1);
  if (c == '=' && outside()) has_value_ = true;
  if (c == '{') {
    // The braces of extern "C" { do not, either.
    const bool hides = first_ != "namespace" && last_ != "extern";
    braces_.push_back(hides);
    hidden_ += hides ? 1 : 0;
  }
  if (c == '}' && !braces_.empty()) {
    hidden_ -= braces_.back() ? 1 : 0;
    braces_.pop_back();
  }
  if (c == ';' || c == '{' || c == '}') {
    if (parentheses_ > 0 && c == ';') return;
    first_.clear();
    last_.clear();
    has_value_ = false;
  }
}

void Scanner::Add(absl::string_view name) {
  static const auto& keywords = *new std::set<std::string>{
      "decltype", "static_assert", "alignas",     "__attribute__",
      "noexcept", "operator",      "TORCH_MODULE"};
  const std::string text(name);
  if (keywords.count(text) > 0) return;
  if (std::find(names_.begin(), names_.end(), text) == names_.end()) {
    names_.push_back(text);
  }
}

bool HasWord(absl::string_view text, absl::string_view word) {
  for (size_t at = text.find(word); at != text.npos;
       at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsWordChar(text[at - 1])) &&
        (end == text.size() || !IsWordChar(text[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> DeclaredNames(absl::string_view source) {
  const std::string text = StripComments(source);
  return Scanner(text).Scan();
}

bool MayDefine(const std::vector<SourceFile>& sources,
               const std::string& word) {
  return std::any_of(
      sources.begin(), sources.end(), [&](const SourceFile& source) {
        const std::string text = StripComments(source.content);
        return absl::StrContains(text, "##") || HasWord(text, word);
      });
}

absl::Status MissingFunction(const std::string& path, const std::string& symbol,
                             const std::string& flag,
                             const std::vector<SourceFile>& sources) {
  std::string message = absl::StrCat("model file ", path, " has no function '",
                                     symbol, "' (--", flag, ")");
  std::vector<std::string> names;
  for (const SourceFile& source : sources) {
    for (std::string& name : DeclaredNames(source.content)) {
      if (name != symbol) names.push_back(std::move(name));
    }
  }
  const std::string nearest = Nearest(symbol, names);
  if (!nearest.empty()) {
    absl::StrAppend(&message, "; did you mean ", nearest, "?");
  } else if (!names.empty()) {
    const size_t more = names.size() - std::min(names.size(), kMostNames);
    names.resize(names.size() - more);
    absl::StrAppend(&message, "; it has ", absl::StrJoin(names, ", "),
                    more > 0 ? absl::StrCat(" and ", more, " more") : "");
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace elasticdl::model
