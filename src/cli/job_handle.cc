#include "job_handle.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

constexpr char kPsPrefix[] = "elasticdl-ps-";
constexpr char kWorkerPrefix[] = "elasticdl-worker-";

// The name of the first pod of a server's slot.
absl::string_view WithoutAttempt(absl::string_view pod) {
  const size_t end = pod.rfind("-r");
  int64_t attempt = 0;
  if (end == absl::string_view::npos ||
      !absl::SimpleAtoi(pod.substr(end + 2), &attempt)) {
    return pod;
  }
  return pod.substr(0, end);
}

// The text of {"error": "…"}, or the whole body.
std::string ErrorOf(const std::string& body) {
  const Json json = ParseJson(body);
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
  if (pod == "master") return false;
  int64_t id = 0;
  // A number means a worker.
  if (absl::SimpleAtoi(wanted, &id) && absl::StartsWith(pod, kPsPrefix)) {
    return false;
  }
  if (absl::EndsWith(pod, absl::StrCat("-", wanted))) return true;
  // worker-1 is elasticdl-worker-<job>-1; ps-1 is elasticdl-ps-<job>-1 and its
  // successors: …-1-r2.
  const bool worker = absl::ConsumePrefix(&wanted, "worker-");
  if (!worker && !absl::ConsumePrefix(&wanted, "ps-")) return false;
  return absl::SimpleAtoi(wanted, &id) &&
         absl::StartsWith(pod, worker ? kWorkerPrefix : kPsPrefix) &&
         absl::EndsWith(WithoutAttempt(pod), absl::StrCat("-", wanted));
}

bool PodComesBefore(absl::string_view a, absl::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = [&](absl::string_view text) {
    return static_cast<size_t>(
        std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
  };
  while (!a.empty() && !b.empty()) {
    // The longer number is larger: there are no leading zeros.
    const size_t in_a = digits(a);
    const size_t in_b = digits(b);
    if (in_a != in_b && in_a > 0 && in_b > 0) return in_a < in_b;
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.empty() && !b.empty();
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
