#include "elasticdl/common/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/log.h"

namespace elasticdl {

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&annotated](absl::string_view type, const absl::Cord& payload) {
        annotated.SetPayload(type, payload);
      });
  return annotated;
}

absl::Status ErrnoToStatus(int error, absl::string_view context) {
  absl::StatusCode code = absl::ErrnoToStatusCode(error);
  // A full disk is the caller's resource problem, not a bug.
  if (error == ENOSPC || error == EDQUOT) {
    code = absl::StatusCode::kResourceExhausted;
  }
  return absl::Status(code, absl::StrCat(context, ": ", strerror(error)));
}

namespace internal {
void CheckFailed(const char* file, int line, const char* what) {
  LogError("check failed at ", file, ":", line, ": ", what);
  abort();
}
}  // namespace internal

}  // namespace elasticdl
