#include "elasticdl/docker/engine.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "auth.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/docker/image_name.h"
#include "elasticdl/http/client.h"
#include "elasticdl/http/url.h"
#include "engine_host.h"
#include "json_field.h"
#include "json_stream.h"
#include "tar_stream.h"

namespace elasticdl::docker {
namespace {

using http::PercentEncode;

// The newest API that this client was written for (Docker 27). Engines also
// support older ones, down to a limit: Docker 29 down to 1.44.
constexpr int kMaxMinorVersion = 47;
// Engines that are too old to send their version (before 2017) have this one.
constexpr int kOldMinorVersion = 24;
constexpr absl::Duration kShortCall = absl::Seconds(60);

// "1.41" → 41.
int MinorVersion(const std::string& version) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(version, absl::MaxSplits('.', 1));
  int minor = 0;
  if (parts.first != "1" || !absl::SimpleAtoi(parts.second, &minor)) {
    return kOldMinorVersion;
  }
  return minor;
}

absl::Status HttpToStatus(const http::Response& response,
                          absl::string_view what) {
  const auto root = ParseJson(response.body);
  std::string message = StringField(root, "message");
  if (message.empty()) {
    message = absl::StrCat("HTTP ", response.code, " ", response.body);
  }
  message = absl::StrCat(what, ": ", absl::StripAsciiWhitespace(message));
  switch (response.code) {
    case 400:
      return absl::InvalidArgumentError(message);
    case 401:
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

// Reads the messages of a build or push: passes progress on and keeps the
// result. Thread-compatible.
class Messages {
 public:
  explicit Messages(const ProgressCallback& show)
      : show_(show),
        stream_([this](const std::string& object) { Take(object); }) {}

  absl::Status Feed(absl::string_view data) { return stream_.Feed(data); }

  // The engine's error message; "" = none.
  const std::string& error() const { return error_; }
  // The current step: "3/7 : RUN make".
  const std::string& step() const { return step_; }
  const std::string& image_id() const { return image_id_; }
  // Did the stream end within an object?
  bool cut() const { return stream_.inside(); }

 private:
  void Take(const std::string& object) {
    const auto root = ParseJson(object);
    if (!root.is_object()) return;
    const std::string error = StringField(root, "error");
    if (!error.empty()) {
      error_ = std::string(absl::StripAsciiWhitespace(error));
      return;
    }
    const std::string id = StringField(ObjectField(root, "aux"), "ID");
    if (!id.empty()) image_id_ = id;
    Progress progress;
    progress.text = StringField(root, "stream");
    progress.status = StringField(root, "status");
    progress.id = StringField(root, "id");
    const nlohmann::json detail = ObjectField(root, "progressDetail");
    progress.current = IntField(detail, "current");
    progress.total = IntField(detail, "total");
    if (absl::StartsWith(progress.text, "Step ")) {
      step_ = std::string(absl::StripAsciiWhitespace(progress.text.substr(5)));
    }
    if (show_) show_(progress);
  }

  const ProgressCallback& show_;
  JsonStream stream_;
  std::string error_;
  std::string step_;
  std::string image_id_;
};

absl::Status PushError(const std::string& what, const std::string& registry,
                       const std::string& error) {
  const std::string message = absl::StrCat(what, ": ", error);
  for (const char* refused :
       {"denied", "unauthorized", "authentication required",
        "no basic auth credentials"}) {
    if (absl::StrContains(error, refused)) {
      return absl::PermissionDeniedError(
          absl::StrCat(message, " (docker login ", registry, "?)"));
    }
  }
  if (absl::StrContains(error, "does not exist locally")) {
    return absl::NotFoundError(message);
  }
  return absl::UnavailableError(message);
}

std::string BuildQuery(const BuildOptions& options,
                       const std::string& dockerfile) {
  // rm, forcerm: remove the containers of all steps, failed ones too.
  std::string query =
      absl::StrCat("?rm=1&forcerm=1&t=", PercentEncode(options.image),
                   "&dockerfile=", PercentEncode(dockerfile));
  if (!options.network.empty()) {
    absl::StrAppend(&query, "&networkmode=", PercentEncode(options.network));
  }
  if (!options.target.empty()) {
    absl::StrAppend(&query, "&target=", PercentEncode(options.target));
  }
  if (options.pull) query += "&pull=1";
  if (options.no_cache) query += "&nocache=1";
  if (!options.build_args.empty()) {
    const nlohmann::json args(options.build_args);
    absl::StrAppend(&query, "&buildargs=", PercentEncode(JsonText(args)));
  }
  return query;
}

http::Server ServerOf(const EngineAddress& address) {
  http::Server server;
  server.base_url = address.base_url;
  server.unix_socket = address.socket;
  server.ca_pem = address.ca_pem;
  // The engine may close an idle connection just when it is used again, and a
  // streamed body cannot be sent twice.
  server.reuse_connections = false;
  return server;
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineAddress& address, RegistryAuth auth)
      : client(ServerOf(address)),
        auth(std::move(auth)),
        name(absl::StrCat("the Docker engine at ", address.name)) {
    login.cert_pem = address.cert_pem;
    login.key_pem = address.key_pem;
  }

  absl::StatusOr<http::Response> Send(http::Request& request,
                                      const http::Client::Sink& take) {
    request.login = login;
    request.what = name;
    absl::StatusOr<http::Response> response =
        client.Send(request, &take, &cancel);
    // The certificates do not fit: the server's, or ours.
    const absl::StatusCode code = response.status().code();
    if (!login.cert_pem.empty() &&
        (code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kInvalidArgument)) {
      return absl::PermissionDeniedError(
          absl::StrCat(response.status().message(), " (see DOCKER_CERT_PATH)"));
    }
    return response;
  }

  std::string Path(absl::string_view path) const {
    return absl::StrCat("/v", version, path);
  }

  absl::Status Negotiate() {
    http::Request ping;
    ping.target = "/_ping";
    ping.limits.total = kShortCall;
    ELASTICDL_ASSIGN_OR_RETURN(
        const http::Response response,
        Send(ping, [](absl::string_view) { return absl::OkStatus(); }));
    if (response.code != 200) {
      return HttpToStatus(response, name);
    }
    const auto it = response.headers.find("api-version");
    const int offered = it == response.headers.end() ? kOldMinorVersion
                                                     : MinorVersion(it->second);
    version = absl::StrCat("1.", std::min(offered, kMaxMinorVersion));
    return absl::OkStatus();
  }

  http::Client client;
  Cancellation cancel;
  http::Login login;
  const RegistryAuth auth;
  // For messages.
  const std::string name;
  std::string version;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

const std::string& Engine::api_version() const { return impl_->version; }

void Engine::Cancel() { impl_->cancel.Cancel(); }

absl::StatusOr<std::unique_ptr<Engine>> Engine::Connect(
    const EngineOptions& options) {
  ELASTICDL_ASSIGN_OR_RETURN(const EngineAddress address,
                             ResolveEngine(options));
  ELASTICDL_ASSIGN_OR_RETURN(
      RegistryAuth auth, RegistryAuth::Read(options.config_dir, options.path));
  ELASTICDL_RETURN_IF_ERROR(CheckSocket(address));
  auto impl = std::make_unique<Impl>(address, std::move(auth));
  ELASTICDL_RETURN_IF_ERROR(impl->Negotiate());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

absl::StatusOr<std::string> Engine::Build(const BuildOptions& options,
                                          const ProgressCallback& show) {
  ELASTICDL_ASSIGN_OR_RETURN(const BuildContext context,
                             ReadContext(options.context));
  return Build(options, context, show);
}

absl::StatusOr<std::string> Engine::Build(const BuildOptions& options,
                                          const BuildContext& context,
                                          const ProgressCallback& show) {
  ELASTICDL_RETURN_IF_ERROR(ParseImageName(options.image).status());
  const std::string what = absl::StrCat("build ", options.image);
  TarStream tar(context.entries, TarOptions());
  http::Request request;
  request.method = "POST";
  request.target = impl_->Path(
      absl::StrCat("/build", BuildQuery(options, context.dockerfile)));
  request.headers = {
      "Content-Type: application/x-tar",
      absl::StrCat("X-Registry-Config: ", impl_->auth.BuildHeader())};
  request.body_source = [&tar](char* buffer, size_t size) {
    return tar.Read(buffer, size);
  };
  Messages messages(show);
  const absl::StatusOr<http::Response> response = impl_->Send(
      request, [&](absl::string_view data) { return messages.Feed(data); });
  if (!response.ok()) return Annotate(response.status(), what);
  if (response->code / 100 != 2) return HttpToStatus(*response, what);
  if (!messages.error().empty()) {
    return absl::AbortedError(
        messages.step().empty() ? absl::StrCat(what, ": ", messages.error())
                                : absl::StrCat(what, ": step ", messages.step(),
                                               ": ", messages.error()));
  }
  if (messages.cut() || messages.image_id().empty()) {
    return absl::UnavailableError(
        absl::StrCat(what, ": the engine ended its answer without a result"));
  }
  return messages.image_id();
}

absl::Status Engine::Push(const std::string& image,
                          const ProgressCallback& show) {
  ELASTICDL_ASSIGN_OR_RETURN(const ImageName name, ParseImageName(image));
  const std::string what = absl::StrCat("push ", image);
  if (!name.digest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": an image is pushed by its tag, not its digest"));
  }
  absl::StatusOr<std::string> auth = impl_->auth.PushHeader(name.registry);
  if (!auth.ok()) return Annotate(auth.status(), what);
  http::Request request;
  request.method = "POST";
  request.target = impl_->Path(absl::StrCat(
      "/images/", name.repository, "/push?tag=", PercentEncode(name.tag)));
  request.headers = {absl::StrCat("X-Registry-Auth: ", *auth)};
  Messages messages(show);
  const absl::StatusOr<http::Response> response = impl_->Send(
      request, [&](absl::string_view data) { return messages.Feed(data); });
  if (!response.ok()) return Annotate(response.status(), what);
  if (response->code / 100 != 2) return HttpToStatus(*response, what);
  if (!messages.error().empty()) {
    return PushError(what, name.registry, messages.error());
  }
  if (messages.cut()) {
    return absl::UnavailableError(
        absl::StrCat(what, ": the engine's answer was cut short"));
  }
  return absl::OkStatus();
}

std::vector<std::string> Engine::Registries() const {
  return impl_->auth.Servers();
}

absl::Status Engine::CheckLogin(const std::string& registry,
                                absl::Duration timeout) {
  http::Request request;
  request.method = "POST";
  request.target = impl_->Path("/auth");
  request.headers = {"Content-Type: application/json"};
  ELASTICDL_ASSIGN_OR_RETURN(request.body,
                             impl_->auth.LoginBody(registry, timeout));
  request.limits.total = timeout;
  ELASTICDL_ASSIGN_OR_RETURN(
      const http::Response response,
      impl_->Send(request, [](absl::string_view) { return absl::OkStatus(); }));
  if (response.code / 100 == 2) return absl::OkStatus();
  return HttpToStatus(response, absl::StrCat("log in at ", registry));
}

absl::StatusOr<std::string> Engine::ImageId(const std::string& image) {
  ELASTICDL_RETURN_IF_ERROR(ParseImageName(image).status());
  http::Request request;
  request.target = impl_->Path(absl::StrCat("/images/", image, "/json"));
  request.limits.total = kShortCall;
  std::string body;
  ELASTICDL_ASSIGN_OR_RETURN(const http::Response response,
                             impl_->Send(request, [&](absl::string_view data) {
                               body.append(data.data(), data.size());
                               return absl::OkStatus();
                             }));
  if (response.code / 100 != 2) {
    return HttpToStatus(response, absl::StrCat("inspect ", image));
  }
  return StringField(ParseJson(body), "Id");
}

}  // namespace elasticdl::docker
