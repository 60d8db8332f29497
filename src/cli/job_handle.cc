#include "job_handle.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

// {"error": "…"} of the status server, or the body as it is.
std::string ErrorOf(const std::string& body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    return json["error"].get<std::string>();
  }
  return body;
}

}  // namespace

absl::Status WaitStopped(JobHandle& job, absl::Duration timeout) {
  if (job.WaitEnd(timeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("job ", job.name(), " has not ended after ",
                   absl::ToDoubleSeconds(timeout), " seconds"));
}

bool MatchesPod(absl::string_view pod, absl::string_view wanted) {
  if (wanted.empty() || pod == wanted) return true;
  return pod != "master" && absl::EndsWith(pod, absl::StrCat("-", wanted));
}

absl::Status HttpAnswerToStatus(int code, const std::string& body,
                                const std::string& job) {
  const std::string message = absl::StrCat("job ", job, ": ", ErrorOf(body));
  switch (code) {
    case 200:
      return absl::OkStatus();
    case 400:
      return absl::InvalidArgumentError(message);
    case 401:
      return absl::UnauthenticatedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return absl::FailedPreconditionError(message);
    case 501:
      return absl::UnimplementedError(message);
    case 503:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(absl::StrCat("HTTP ", code, ": ", message));
  }
}

}  // namespace elasticdl::cli
