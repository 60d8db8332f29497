#include "cli/fake_cluster.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/check.h"

namespace elasticdl::test {
namespace {

using Json = nlohmann::json;

std::string QueryOf(const kube::Request& request, const std::string& name) {
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return "";
}

bool Selects(const std::string& selector, const Json& object) {
  for (absl::string_view part :
       absl::StrSplit(selector, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const Json labels = object["metadata"].value("labels", Json::object());
    if (labels.value(pair.first, "") != pair.second) return false;
  }
  return true;
}

kube::Response Reply(int code, const Json& body) { return {code, body.dump()}; }

kube::Response Refusal(int code, const std::string& reason,
                       const std::string& message) {
  return Reply(code,
               {{"kind", "Status"}, {"reason", reason}, {"message", message}});
}

// What a path is about: /api/v1/namespaces/ns/pods/name/log.
struct Target {
  std::string group;
  std::string kind;
  std::string name;
  std::string part;
  // "pods" or "pods/name".
  std::string key() const {
    return name.empty() ? kind : absl::StrCat(kind, "/", name);
  }
};
Target TargetOf(const kube::Request& request) {
  std::vector<std::string> path = request.path;
  Target target;
  if (path[0] == "apis") {
    target.group = path[1];
    path.erase(path.begin());
  }
  path.erase(path.begin(), path.begin() + 2);
  if (path.size() > 2 && path[0] == "namespaces") {
    path.erase(path.begin(), path.begin() + 2);
  }
  ELASTICDL_CHECK(!path.empty());
  path.resize(3);
  target.kind = path[0];
  target.name = path[1];
  target.part = path[2];
  return target;
}

// "create secrets", "get pods/log" of an access review.
std::string RightOf(const Json& review) {
  const Json& right = review["spec"]["resourceAttributes"];
  const std::string part = right.value("subresource", "");
  return absl::StrCat(right.value("verb", ""), " ", right.value("resource", ""),
                      part.empty() ? "" : "/", part);
}

}  // namespace

// What a client talks through.
class FakeCluster::Door : public kube::Transport {
 public:
  explicit Door(FakeCluster& cluster) : cluster_(cluster) {}

  absl::StatusOr<kube::Response> Call(const kube::Request& request,
                                      absl::Duration timeout,
                                      const kube::Cancellation* cancel) final {
    return cluster_.Answer(request);
  }
  absl::StatusOr<kube::Response> Stream(const kube::Request& request,
                                        absl::Duration idle_timeout,
                                        const kube::Cancellation* cancel,
                                        const ChunkSink& chunk) final {
    return cluster_.Stream(request, cancel, chunk);
  }

 private:
  FakeCluster& cluster_;
};

std::unique_ptr<kube::Client> FakeCluster::NewClient() {
  kube::Client::Options options;
  options.namespace_name = "ns";
  return std::make_unique<kube::Client>(std::make_unique<Door>(*this), options);
}

std::vector<std::string> FakeCluster::Names() const {
  MutexLock lock(mu_);
  std::vector<std::string> names;
  for (const auto& [key, object] : objects_) names.push_back(key);
  return names;
}

Json FakeCluster::Get(const std::string& key) const {
  MutexLock lock(mu_);
  const auto it = objects_.find(key);
  return it == objects_.end() ? Json() : it->second;
}

void FakeCluster::Put(const std::string& key, Json object) {
  MutexLock lock(mu_);
  Store(key, std::move(object), "ADDED");
}

void FakeCluster::Remove(const std::string& key) {
  MutexLock lock(mu_);
  Drop(key);
}

void FakeCluster::Merge(const std::string& key, const Json& patch) {
  MutexLock lock(mu_);
  Json object = objects_[key];
  object.merge_patch(patch);
  Store(key, std::move(object), "MODIFIED");
}

void FakeCluster::SetPod(const std::string& pod, const std::string& phase,
                         const Json& state, int restarts) {
  Merge(absl::StrCat("pods/", pod),
        {{"status",
          {{"phase", phase},
           {"containerStatuses",
            Json::array({{{"state", state}, {"restartCount", restarts}}})}}}});
}

void FakeCluster::AppendLog(const std::string& pod, const std::string& text) {
  MutexLock lock(mu_);
  logs_[pod] += text;
  WakeAll();
}

void FakeCluster::Refuse(const std::string& what, int code,
                         const std::string& message) {
  MutexLock lock(mu_);
  refused_[what] = {code, message};
}

void FakeCluster::Deny(const std::string& right, bool account) {
  MutexLock lock(mu_);
  denied_.insert(absl::StrCat(account ? "account " : "", right));
}

void FakeCluster::RemoveNamespace() {
  MutexLock lock(mu_);
  has_namespace_ = false;
}

std::vector<std::string> FakeCluster::calls() const {
  MutexLock lock(mu_);
  return calls_;
}

void FakeCluster::Store(const std::string& key, Json object, const char* type) {
  object["metadata"]["resourceVersion"] = absl::StrCat(++version_);
  if (!object["metadata"].contains("uid")) {
    object["metadata"]["uid"] = absl::StrCat("uid-", version_);
  }
  if (!object["metadata"].contains("creationTimestamp")) {
    object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z";
  }
  object["metadata"]["name"] = key.substr(key.find('/') + 1);
  objects_[key] = object;
  events_.push_back({version_, key, {{"type", type}, {"object", object}}});
  WakeAll();
}

void FakeCluster::Drop(const std::string& key) {
  const auto it = objects_.find(key);
  if (it == objects_.end()) return;
  const Json object = it->second;
  objects_.erase(it);
  events_.push_back(
      {++version_, key, {{"type", "DELETED"}, {"object", object}}});
  const std::string uid = object["metadata"].value("uid", "");
  // The garbage collector.
  std::vector<std::string> owned;
  for (const auto& [other, one] : objects_) {
    const Json owners = one["metadata"].value("ownerReferences", Json::array());
    if (!owners.empty() && owners[0].value("uid", "") == uid) {
      owned.push_back(other);
    }
  }
  for (const std::string& other : owned) Drop(other);
  WakeAll();
}

void FakeCluster::WakeAll() {
  const uint64_t one = 1;
  for (const Fd& fd : streams_) {
    ELASTICDL_CHECK(write(fd.get(), &one, sizeof(one)) == sizeof(one));
  }
}

kube::Response FakeCluster::Answer(const kube::Request& request) {
  const Target target = TargetOf(request);
  if (target.part == "proxy") return proxy(request);
  const std::string key = target.key();
  const bool dry = !QueryOf(request, "dryRun").empty();
  const std::string call = absl::StrCat(dry ? "TRY" : request.method, " ", key);
  kube::Response response;
  {
    MutexLock lock(mu_);
    if (absl::EndsWith(target.kind, "accessreviews")) {
      return Review(target.kind, Json::parse(request.body));
    }
    if (absl::StartsWith(target.group, "who-am-i")) {
      return Refusal(403, "Forbidden",
                     "users is forbidden: User \"ann\" cannot get resource "
                     "\"users\" in API group \"\" in the namespace \"ns\"");
    }
    calls_.push_back(call);
    response = Serve(request, target.kind, key, dry);
  }
  if (after_call) after_call(call);
  return response;
}

kube::Response FakeCluster::Review(const std::string& kind,
                                   const Json& review) {
  const bool account = kind == "localsubjectaccessreviews";
  const std::string right =
      absl::StrCat(account ? "account " : "", RightOf(review));
  return Reply(201, {{"status", {{"allowed", denied_.count(right) == 0}}}});
}

kube::Response FakeCluster::Serve(const kube::Request& request,
                                  const std::string& kind,
                                  const std::string& key, bool dry) {
  const auto refused =
      refused_.find(absl::StrCat(dry ? "TRY" : request.method, " ", kind));
  if (refused != refused_.end() && refused->second.first != 0) {
    return Refusal(refused->second.first, "Refused", refused->second.second);
  }
  const bool one = key != kind;
  if (!has_namespace_ && (kind == "namespaces" || request.method == "POST")) {
    return Refusal(404, "NotFound", "namespaces \"ns\" not found");
  }
  if (kind == "namespaces") return Reply(200, {{"kind", "Namespace"}});
  if (request.method == "POST") {
    Json object = Json::parse(request.body);
    const std::string name =
        absl::StrCat(kind, "/", object["metadata"]["name"].get<std::string>());
    if (objects_.count(name) > 0) {
      return Refusal(409, "AlreadyExists", absl::StrCat(name, " exists"));
    }
    if (dry) return Reply(201, object);
    const Json texts = object.value("stringData", Json::object());
    for (const auto& [part, text] : texts.items()) {
      object["data"][part] = absl::Base64Escape(text.get<std::string>());
    }
    object.erase("stringData");
    if (kind == "pods") object["status"] = {{"phase", "Pending"}};
    Store(name, object, "ADDED");
    return Reply(201, objects_[name]);
  }
  if (!one) {
    Json items = Json::array();
    const std::string selector = QueryOf(request, "labelSelector");
    for (const auto& [other, object] : objects_) {
      if (absl::StartsWith(other, kind + "/") && Selects(selector, object)) {
        items.push_back(object);
      }
    }
    return Reply(200,
                 {{"kind", "List"},
                  {"metadata", {{"resourceVersion", absl::StrCat(version_)}}},
                  {"items", items}});
  }
  if (objects_.count(key) == 0) {
    return Refusal(404, "NotFound", absl::StrCat(key, " not found"));
  }
  if (request.method == "PATCH") {
    Json object = objects_[key];
    object.merge_patch(Json::parse(request.body));
    Store(key, std::move(object), "MODIFIED");
  } else if (request.method == "DELETE") {
    const Json object = objects_[key];
    Drop(key);
    return Reply(200, object);
  }
  return Reply(200, objects_[key]);
}

absl::StatusOr<kube::Response> FakeCluster::Stream(
    const kube::Request& request, const kube::Cancellation* cancel,
    const kube::Transport::ChunkSink& sink) {
  const Target target = TargetOf(request);
  const bool log = target.part == "log";
  int fd = -1;
  std::list<Fd>::iterator place;
  {
    MutexLock lock(mu_);
    fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    place = streams_.emplace(streams_.end(), fd);
  }
  int64_t seen = 0;
  ELASTICDL_CHECK(log ||
                  absl::SimpleAtoi(QueryOf(request, "resourceVersion"), &seen));
  size_t sent = 0;
  absl::StatusOr<kube::Response> result = kube::Response{200, ""};
  while (true) {
    pollfd fds[] = {{fd, POLLIN, 0},
                    {cancel == nullptr ? -1 : cancel->fd(), POLLIN, 0}};
    poll(fds, 2, -1);
    if (cancel != nullptr && cancel->cancelled()) {
      result = absl::CancelledError("cancelled");
      break;
    }
    uint64_t ignored;
    [[maybe_unused]] const ssize_t n = read(fd, &ignored, sizeof(ignored));
    std::string bytes;
    bool over = false;
    {
      MutexLock lock(mu_);
      if (log) {
        const std::string& name = target.name;
        bytes = logs_[name].substr(sent);
        sent = logs_[name].size();
        const auto it = objects_.find("pods/" + name);
        over = QueryOf(request, "follow").empty() || it == objects_.end() ||
               !it->second.contains(
                   "/status/containerStatuses/0/state/running"_json_pointer);
      } else {
        for (const Event& event : events_) {
          if (event.version <= seen) continue;
          seen = event.version;
          if (absl::StartsWith(event.key, target.kind + "/") &&
              Selects(QueryOf(request, "labelSelector"),
                      event.event["object"])) {
            absl::StrAppend(&bytes, event.event.dump(), "\n");
          }
        }
      }
    }
    if (!bytes.empty() && !sink(bytes)) {
      result = absl::CancelledError("the sink has enough");
      break;
    }
    if (over) break;
  }
  MutexLock lock(mu_);
  streams_.erase(place);
  return result;
}

}  // namespace elasticdl::test
