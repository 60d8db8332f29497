#include "credentials.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "exec_plugin.h"

namespace elasticdl::kube {
namespace {

// A pod's token is valid for an hour and its file is replaced long before that.
// Other clients use a minute too.
constexpr absl::Duration kTokenFileAge = absl::Minutes(1);
// A login program may ask a slow service, but no person: it has no terminal.
constexpr absl::Duration kPluginTimeout = absl::Minutes(1);
// A credential must not expire during the call.
constexpr absl::Duration kExpiryMargin = absl::Seconds(5);

// A line break in a token would forge headers.
bool FitsHeader(const std::string& token) {
  return std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == ' ';
  });
}

}  // namespace

struct Credentials::Fetching {
  // Cancelled when the fetch is over: those who wait for it poll it.
  Cancellation over;
  // Written before `over`.
  absl::Status error;
};

Credentials::Credentials(const ClusterConfig& config, const Clock& clock)
    : config_(config), clock_(clock) {}

Credentials::~Credentials() = default;

bool Credentials::renewable() const {
  return !config_.token_file.empty() || !config_.exec.command.empty();
}

absl::StatusOr<std::shared_ptr<const Identity>> Credentials::Obtain(
    uint64_t refused, const Cancellation* cancel) {
  while (true) {
    std::shared_ptr<Fetching> fetching;
    bool mine = false;
    {
      MutexLock lock(mu_);
      if (current_ != nullptr && current_->generation > refused &&
          clock_.WallNow() < current_->stale_at) {
        return current_;
      }
      mine = fetching_ == nullptr;
      if (mine) fetching_ = std::make_shared<Fetching>();
      fetching = fetching_;
    }
    if (mine) return Finish(*fetching, Fetch(cancel), refused);
    pollfd fds[] = {{fetching->over.fd(), POLLIN, 0},
                    {cancel == nullptr ? -1 : cancel->fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
      return ErrnoToStatus(errno, "poll");
    }
    if (cancel != nullptr && cancel->cancelled()) {
      return absl::CancelledError("cancelled while waiting for credentials");
    }
    // CANCELLED: the call that fetched was cancelled, not this one.
    if (fetching->over.cancelled() && !fetching->error.ok() &&
        !absl::IsCancelled(fetching->error)) {
      return fetching->error;
    }
  }
}

absl::StatusOr<std::shared_ptr<const Identity>> Credentials::Finish(
    Fetching& fetching, absl::StatusOr<Identity> fetched, uint64_t refused) {
  std::shared_ptr<const Identity> result;
  {
    MutexLock lock(mu_);
    if (fetched.ok()) {
      Identity identity = *fetched;
      identity.generation = ++generation_;
      current_ = std::make_shared<const Identity>(std::move(identity));
      result = current_;
    } else if (current_ != nullptr && current_->generation > refused &&
               !config_.token_file.empty()) {
      // The old token may still be valid.
      result = current_;
    } else {
      fetching.error = fetched.status();
    }
    fetching_ = nullptr;
  }
  fetching.over.Cancel();
  if (result == nullptr) return fetched.status();
  if (!fetched.ok()) {
    LogWarning(fetched.status().message(), "; the old one is used");
  }
  return result;
}

absl::StatusOr<Identity> Credentials::Fetch(const Cancellation* cancel) {
  if (!config_.exec.command.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(PluginCredential credential,
                               RunExecPlugin(config_, kPluginTimeout, cancel));
    if (!FitsHeader(credential.token)) {
      return absl::UnauthenticatedError(
          absl::StrCat("login program ", config_.exec.command,
                       ": its token has characters that no token has"));
    }
    Identity identity;
    identity.token = std::move(credential.token);
    identity.client_cert_pem = std::move(credential.client_cert_pem);
    identity.client_key_pem = std::move(credential.client_key_pem);
    identity.stale_at = credential.expires - kExpiryMargin;
    return identity;
  }
  if (!config_.token_file.empty()) return FromTokenFile();
  Identity identity;
  identity.token = config_.token;
  identity.client_cert_pem = config_.client_cert_pem;
  identity.client_key_pem = config_.client_key_pem;
  identity.username = config_.username;
  identity.password = config_.password;
  return identity;
}

absl::StatusOr<Identity> Credentials::FromTokenFile() {
  const absl::StatusOr<std::string> text = ReadFile(config_.token_file);
  if (!text.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat("token file: ", text.status().message()));
  }
  Identity identity;
  identity.token = std::string(absl::StripAsciiWhitespace(*text));
  identity.client_cert_pem = config_.client_cert_pem;
  identity.client_key_pem = config_.client_key_pem;
  identity.stale_at = clock_.WallNow() + kTokenFileAge;
  if (identity.token.empty() || !FitsHeader(identity.token)) {
    return absl::UnauthenticatedError(
        absl::StrCat("token file ", config_.token_file, " holds no token"));
  }
  return identity;
}

}  // namespace elasticdl::kube
