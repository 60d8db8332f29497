#include "elasticdl/common/suggest.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace elasticdl {
namespace {

// Of a word this short one replaced letter makes another word: foo is not zoo.
// A letter that is missing or that has changed its place is a slip.
constexpr size_t kShort = 3;

std::string Plain(absl::string_view word) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(word, {{"-", "_"}}));
}

// `a` and `b` differ in one letter only.
bool IsReplaced(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1 : 0;
  return different == 1;
}

}  // namespace

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1,
                                        std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string Nearest(absl::string_view word,
                    const std::vector<std::string>& names) {
  const std::string wanted = Plain(word);
  // A third of the letters may be wrong; more would be guessing.
  size_t best = std::max<size_t>(wanted.size() / 3, 1) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const std::string known = Plain(name);
    size_t distance = EditDistance(wanted, known);
    // Four letters: shorter beginnings fit too many names.
    if (wanted.size() >= 4 && absl::StartsWith(known, wanted)) {
      distance = std::min<size_t>(distance, 1);
    }
    if (wanted.size() <= kShort && IsReplaced(wanted, known)) continue;
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace elasticdl
