// Whom an error of a collective operation blames. The words are those of the
// other files here (tests/collective/blame_test.cc has them all): a reason
// travels as text, through Abort and from thread to thread.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "elasticdl/collective/communicator.h"
#include "host_groups.h"

namespace elasticdl::collective {

int BlamedRank(const absl::Status& status) {
  const absl::string_view reason = status.message();
  if (absl::StrContains(reason, kPartOfWorld)) return -1;
  // The first of these that is there: "rank 1 lost rank 2" blames rank 2.
  for (const absl::string_view words :
       {" lost rank ", " waited for rank ", "connect to rank ", "rank "}) {
    const size_t at = reason.find(words);
    if (at == absl::string_view::npos) continue;
    const absl::string_view rest = reason.substr(at + words.size());
    const size_t digits =
        std::min(rest.find_first_not_of("0123456789"), rest.size());
    int rank = -1;
    if (absl::SimpleAtoi(rest.substr(0, digits), &rank)) return rank;
  }
  return -1;
}

}  // namespace elasticdl::collective
