// Turns HTTP codes into Status.
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/kube/client.h"
#include "url.h"

namespace elasticdl::kube {
namespace {

// Enough to recognise a proxy's error page, short enough for one line.
constexpr size_t kMaxForeignBody = 200;

absl::StatusCode CodeOf(int code, const std::string& reason,
                        const std::string& message) {
  switch (code) {
    case 400:
    case 413:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      // A quota may have room later; a missing right stays missing.
      return absl::StrContains(message, "exceeded quota")
                 ? absl::StatusCode::kResourceExhausted
                 : absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 405:
    case 406:
    case 415:
      return absl::StatusCode::kUnimplemented;
    case 409:
      return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists
                                       : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 408:
    case 429:
      return absl::StatusCode::kUnavailable;
    default:
      return code >= 500 ? absl::StatusCode::kUnavailable
                         : absl::StatusCode::kUnknown;
  }
}

// The path without the query: that of a watch is long and explains nothing.
std::string Asked(const Request& request) {
  Request bare;
  bare.path = request.path;
  return absl::StrCat(request.method, " ", TargetOf(bare));
}

}  // namespace

absl::Status ToStatus(const Request& request, const Response& response) {
  if (response.code >= 200 && response.code < 300) return absl::OkStatus();
  const Json body = ParseJson(response.body);
  std::string message = TextAt(body, "/message");
  const std::string reason = TextAt(body, "/reason");
  const absl::StatusCode code = CodeOf(response.code, reason, message);
  if (message.empty()) {
    message = std::string(absl::StripAsciiWhitespace(
        absl::string_view(response.body).substr(0, kMaxForeignBody)));
  }
  if (message.empty()) message = "no message";
  return absl::Status(
      code,
      absl::StrCat(message, " (", Asked(request), ": HTTP ", response.code,
                   reason.empty() ? "" : " ", reason, ")"));
}

}  // namespace elasticdl::kube
