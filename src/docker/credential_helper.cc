#include "credential_helper.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/process.h"
#include "json_field.h"

namespace elasticdl::docker {
namespace {

// What all helpers print when they have no entry.
constexpr char kNoEntry[] = "credentials not found";

absl::StatusOr<HelperAnswer> Parse(const std::string& text, int code) {
  if (code != 0) {
    if (absl::StrContains(text, kNoEntry)) return HelperAnswer();
    // If it failed, its output is a message and not a secret.
    return absl::UnavailableError(absl::StripAsciiWhitespace(text));
  }
  const auto root = ParseJson(text);
  if (!root.is_object()) return absl::UnavailableError("it gave no JSON");
  HelperAnswer answer;
  answer.user = StringField(root, "Username");
  answer.secret = StringField(root, "Secret");
  return answer;
}

}  // namespace

absl::StatusOr<HelperAnswer> AskCredentialHelper(const std::string& helper,
                                                 const std::string& server,
                                                 const std::string& path,
                                                 absl::Duration timeout) {
  const std::string program = absl::StrCat("docker-credential-", helper);
  if (absl::StrContains(helper, '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", helper, "' is not the name of a credential helper"));
  }
  process::RunOptions options;
  options.argv = {program, "get"};
  // The last value of a variable counts.
  options.environment.push_back(absl::StrCat("PATH=", path));
  options.input = absl::StrCat(server, "\n");
  options.timeout = timeout;
  const absl::StatusOr<process::RunResult> result = process::Run(options);
  if (absl::IsNotFound(result.status())) {
    return absl::NotFoundError(absl::StrCat(
        program, ", which the Docker configuration names, is not in the PATH"));
  }
  const std::string what = absl::StrCat(program, " get ", server);
  if (absl::IsDeadlineExceeded(result.status())) {
    return absl::UnavailableError(
        absl::StrCat(what, ": ", result.status().message()));
  }
  if (!result.ok()) return Annotate(result.status(), what);
  absl::StatusOr<HelperAnswer> answer = Parse(result->output, result->code);
  if (!answer.ok()) return Annotate(answer.status(), what);
  return answer;
}

}  // namespace elasticdl::docker
