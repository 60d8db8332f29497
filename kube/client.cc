#include "elasticdl/kube/client.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "resource.h"

namespace elasticdl::kube {
namespace {

// Somebody else may write between our read and our write, but hardly more than
// a few times in a row.
constexpr int kApplyTries = 5;

int64_t WholeSeconds(absl::Duration duration) {
  return absl::ToInt64Seconds(absl::Ceil(duration, absl::Seconds(1)));
}

// Fields that the server fills in and that a client may not change or omit.
void CarryOver(const Json& present, Json& object) {
  object["metadata"]["resourceVersion"] =
      TextAt(present, "/metadata/resourceVersion");
  if (TextAt(object, "/kind") != "Service") return;
  for (const char* field : {"clusterIP", "clusterIPs"}) {
    const auto spec = present.find("spec");
    if (spec == present.end() || !spec->is_object()) return;
    const auto value = spec->find(field);
    if (value != spec->end() && !object["spec"].contains(field)) {
      object["spec"][field] = *value;
    }
  }
}

// What a pod answered, unless it was the API server that did.
absl::StatusOr<Response> PodResponse(const Request& request,
                                     absl::StatusOr<Response> response) {
  if (!response.ok() || response->code < 400) return response;
  const Json body = ParseJson(response->body);
  // Servers before 1.21 answer in plain text.
  if (TextAt(body, "/kind") == "Status" ||
      absl::StartsWithIgnoreCase(response->body,
                                 "error trying to reach service")) {
    return ToStatus(request, *response);
  }
  return response;
}

}  // namespace

Client::Client(std::unique_ptr<Transport> transport, Options options)
    : transport_(std::move(transport)), options_(std::move(options)) {}

Client::~Client() = default;

std::string Client::NamespaceOf(const Json& object) const {
  return TextAt(object, "/metadata/namespace", options_.namespace_name);
}

absl::StatusOr<Json> Client::Ask(const Request& request) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const Response response,
      transport_->Call(request, options_.timeout, &cancel_));
  ELASTICDL_RETURN_IF_ERROR(ToStatus(request, response));
  Json object = ParseJson(response.body);
  if (!object.is_object()) {
    return absl::UnavailableError(
        absl::StrCat(request.method, " ", request.path.back(),
                     ": the answer is not a JSON object: ",
                     absl::string_view(response.body).substr(0, 200)));
  }
  return object;
}

Request Client::CreateRequest(const Resource& resource,
                              const Json& object) const {
  Request request;
  request.method = "POST";
  request.path = PathOf(resource, NamespaceOf(object));
  request.body = JsonText(object);
  return request;
}

absl::StatusOr<Json> Client::Create(const Resource& resource,
                                    const Json& object) {
  return Ask(CreateRequest(resource, object));
}

absl::Status Client::TryCreate(const Resource& resource, const Json& object) {
  Request request = CreateRequest(resource, object);
  request.query = {{"dryRun", "All"}};
  return Ask(request).status();
}

absl::StatusOr<Json> Client::Get(const Resource& resource,
                                 const std::string& name) {
  Request request;
  request.path = PathOf(resource, options_.namespace_name, name);
  return Ask(request);
}

absl::StatusOr<Json> Client::List(const Resource& resource,
                                  const std::string& selector) {
  Request request;
  request.path = PathOf(resource, options_.namespace_name);
  if (!selector.empty()) request.query = {{"labelSelector", selector}};
  return Ask(request);
}

absl::StatusOr<Json> Client::Replace(const Resource& resource,
                                     const std::string& name,
                                     const Json& object) {
  Request request;
  request.method = "PUT";
  request.path = PathOf(resource, NamespaceOf(object), name);
  request.body = JsonText(object);
  return Ask(request);
}

absl::StatusOr<Json> Client::Patch(const Resource& resource,
                                   const std::string& name,
                                   const Json& merge_patch) {
  Request request;
  request.method = "PATCH";
  request.path = PathOf(resource, options_.namespace_name, name);
  request.content_type = "application/merge-patch+json";
  request.body = JsonText(merge_patch);
  return Ask(request);
}

absl::Status Client::Delete(const Resource& resource, const std::string& name,
                            absl::Duration grace) {
  Json options = {{"apiVersion", "v1"},
                  {"kind", "DeleteOptions"},
                  {"propagationPolicy", "Background"}};
  if (grace >= absl::ZeroDuration()) {
    options["gracePeriodSeconds"] = WholeSeconds(grace);
  }
  Request request;
  request.method = "DELETE";
  request.path = PathOf(resource, options_.namespace_name, name);
  request.body = JsonText(options);
  return Ask(request).status();
}

absl::StatusOr<Json> Client::Apply(const Resource& resource,
                                   const Json& object) {
  const std::string name = TextAt(object, "/metadata/name");
  absl::StatusOr<Json> result = Create(resource, object);
  for (int i = 0; i < kApplyTries; ++i) {
    // ABORTED: it was changed in between; NOT_FOUND: deleted in between.
    if (absl::IsNotFound(result.status()) && i > 0) {
      result = Create(resource, object);
    }
    if (!absl::IsAlreadyExists(result.status()) &&
        !absl::IsAborted(result.status())) {
      return result;
    }
    Request get;
    get.path = PathOf(resource, NamespaceOf(object), name);
    const absl::StatusOr<Json> present = Ask(get);
    if (!present.ok()) {
      result = present;
      continue;
    }
    Json next = object;
    CarryOver(*present, next);
    result = Replace(resource, name, next);
  }
  return result;
}

absl::Status Client::Logs(const std::string& pod, const LogOptions& options,
                          const Cancellation* cancel,
                          const Transport::ChunkSink& chunk) {
  Request request;
  request.path = PathOf(Pods(), options_.namespace_name, pod);
  request.path.push_back("log");
  if (!options.container.empty()) {
    request.query.emplace_back("container", options.container);
  }
  if (options.follow) request.query.emplace_back("follow", "true");
  if (options.previous) request.query.emplace_back("previous", "true");
  if (options.tail_lines >= 0) {
    request.query.emplace_back("tailLines", absl::StrCat(options.tail_lines));
  }
  // No limit for silence: a container may log nothing for hours.
  const absl::Duration silence =
      options.follow ? absl::InfiniteDuration() : options_.timeout;
  ELASTICDL_ASSIGN_OR_RETURN(
      const Response response,
      transport_->Stream(request, silence,
                         cancel == nullptr ? &cancel_ : cancel, chunk));
  return ToStatus(request, response);
}

Request Client::ProxyRequest(const ProxyCall& call) const {
  Request request;
  request.method = call.method;
  request.path = PathOf(Pods(), options_.namespace_name,
                        absl::StrCat(call.pod, ":", call.port));
  request.path.push_back("proxy");
  request.path.insert(request.path.end(), call.path.begin(), call.path.end());
  // The pod's root: without the slash the server would only redirect there.
  if (call.path.empty()) request.path.push_back("");
  request.query = call.query;
  return request;
}

absl::StatusOr<Response> Client::Proxy(const ProxyCall& call) {
  const Request request = ProxyRequest(call);
  return PodResponse(request,
                     transport_->Call(request, options_.timeout, &cancel_));
}

absl::StatusOr<Response> Client::ProxyStream(
    const ProxyCall& call, absl::Duration idle_timeout,
    const Cancellation* cancel, const Transport::ChunkSink& chunk) {
  const Request request = ProxyRequest(call);
  return PodResponse(request,
                     transport_->Stream(request, idle_timeout, cancel, chunk));
}

}  // namespace elasticdl::kube
