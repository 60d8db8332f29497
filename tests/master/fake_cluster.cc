#include "master/fake_cluster.h"

#include <poll.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::master::test {
namespace {

using kube::Json;
using kube::Request;
using kube::Response;
using kube::TextAt;

// Only a failing test waits that long.
constexpr absl::Duration kPatience = absl::Seconds(20);
// A watch looks this often whether it is cancelled; changes wake it at once.
constexpr absl::Duration kCancelCheck = absl::Milliseconds(2);

Response Refuse(int code, const std::string& reason,
                const std::string& message) {
  return {code, Json({{"kind", "Status"},
                      {"code", code},
                      {"reason", reason},
                      {"message", message}})
                    .dump()};
}

std::string QueryOf(const Request& request, const std::string& name) {
  for (const auto& [key, value] : request.query) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

class FakeCluster::Connection : public kube::Transport {
 public:
  explicit Connection(FakeCluster& cluster) : cluster_(cluster) {}

  absl::StatusOr<Response> Call(const Request& request, absl::Duration timeout,
                                const kube::Cancellation* cancel) override {
    return cluster_.Call(request, timeout, cancel);
  }
  absl::StatusOr<Response> Stream(const Request& request, absl::Duration,
                                  const kube::Cancellation* cancel,
                                  const ChunkSink& chunk) override {
    int64_t from = 0;
    if (!absl::SimpleAtoi(QueryOf(request, "resourceVersion"), &from)) {
      return absl::InvalidArgumentError("no version");
    }
    return cluster_.Watch(from, cancel, chunk);
  }

 private:
  FakeCluster& cluster_;
};

std::unique_ptr<kube::Transport> FakeCluster::Connect() {
  return std::make_unique<Connection>(*this);
}

void FakeCluster::Note(const char* type, Json pod) {
  pod["metadata"]["resourceVersion"] = absl::StrCat(++version_);
  const std::string name = TextAt(pod, "/metadata/name");
  history_.push_back(
      {version_, Json({{"type", type}, {"object", pod}}).dump() + "\n"});
  if (std::string(type) == "DELETED") {
    pods_.erase(name);
  } else {
    pods_[name] = std::move(pod);
  }
  changed_.NotifyAll();
}

void FakeCluster::Put(const Json& pod) {
  MutexLock lock(mu_);
  const bool is_new = pods_.count(TextAt(pod, "/metadata/name")) == 0;
  Note(is_new ? "ADDED" : "MODIFIED", pod);
}

void FakeCluster::SetStatus(const std::string& name, const Json& status) {
  MutexLock lock(mu_);
  Json pod = pods_[name];
  pod["status"] = status;
  Note("MODIFIED", std::move(pod));
}

void FakeCluster::Remove(const std::string& name) {
  MutexLock lock(mu_);
  if (pods_.count(name) != 0) Note("DELETED", pods_[name]);
}

bool FakeCluster::Has(const std::string& name) const {
  MutexLock lock(mu_);
  return pods_.count(name) != 0;
}

Json FakeCluster::Get(const std::string& name) const {
  MutexLock lock(mu_);
  const auto it = pods_.find(name);
  return it == pods_.end() ? Json() : it->second;
}

bool FakeCluster::WaitFor(const std::string& name) const {
  const absl::Time until = Clock::Real().Now() + kPatience;
  MutexLock lock(mu_);
  while (pods_.count(name) == 0) {
    if (Clock::Real().Now() >= until) return false;
    changed_.WaitFor(mu_, until - Clock::Real().Now());
  }
  return true;
}

void FakeCluster::SetDown(bool down) {
  MutexLock lock(mu_);
  down_ = down;
  floor_ = version_ + 1;
  ++version_;
  changed_.NotifyAll();
}

void FakeCluster::SetBlind(bool blind) {
  MutexLock lock(mu_);
  blind_ = blind;
  floor_ = version_ + 1;
  ++version_;
  changed_.NotifyAll();
}

void FakeCluster::AnswerCreate(int code, const std::string& message) {
  MutexLock lock(mu_);
  create_code_ = code;
  create_message_ = message;
}

void FakeCluster::LoseNextCreateAnswer() {
  MutexLock lock(mu_);
  lose_answer_ = true;
}

void FakeCluster::SetSilent(bool silent) {
  MutexLock lock(mu_);
  silent_ = silent;
}

void FakeCluster::SetSlowDeletion(bool slow) {
  MutexLock lock(mu_);
  slow_deletion_ = slow;
}

int FakeCluster::num_deletes() const {
  MutexLock lock(mu_);
  return num_deletes_;
}

Response FakeCluster::Create(const std::string& body) {
  if (create_code_ != 0) return Refuse(create_code_, "", create_message_);
  Json pod = Json::parse(body, nullptr, false);
  const std::string name = TextAt(pod, "/metadata/name");
  if (pods_.count(name) != 0) {
    return Refuse(409, "AlreadyExists",
                  absl::StrCat("pods \"", name, "\" already exists"));
  }
  pod["metadata"]["uid"] = absl::StrCat("uid-of-", name);
  pod["status"] = {{"phase", "Pending"}};
  Note("ADDED", std::move(pod));
  return {201, pods_[name].dump()};
}

Response FakeCluster::Delete(const std::string& name) {
  ++num_deletes_;
  const auto it = pods_.find(name);
  if (it == pods_.end()) {
    return Refuse(404, "NotFound",
                  absl::StrCat("pods \"", name, "\" not found"));
  }
  Json pod = it->second;
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  Note(slow_deletion_ ? "MODIFIED" : "DELETED", std::move(pod));
  return {200, "{}"};
}

Response FakeCluster::List() const {
  Json items = Json::array();
  for (const auto& [name, pod] : pods_) items.push_back(pod);
  return {200,
          Json({{"metadata", {{"resourceVersion", absl::StrCat(version_)}}},
                {"items", items}})
              .dump()};
}

absl::StatusOr<Response> FakeCluster::Call(const Request& request,
                                           absl::Duration timeout,
                                           const kube::Cancellation* cancel) {
  bool silent = false;
  {
    MutexLock lock(mu_);
    silent = silent_;
  }
  if (silent) {
    pollfd fd = {cancel->fd(), POLLIN, 0};
    poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
    if (!cancel->cancelled()) return absl::DeadlineExceededError("silence");
  }
  if (cancel != nullptr && cancel->cancelled()) {
    return absl::CancelledError("cancelled");
  }
  MutexLock lock(mu_);
  if (down_) return absl::UnavailableError("the server is down");
  // …/pods or …/pods/<name>.
  const bool one = request.path.back() != "pods";
  if (request.method == "POST") {
    Response response = Create(request.body);
    if (std::exchange(lose_answer_, false)) {
      return absl::UnavailableError("the answer was lost");
    }
    return response;
  }
  if (request.method == "DELETE") return Delete(request.path.back());
  if (!one && blind_) return absl::UnavailableError("lists are broken");
  if (!one) return List();
  const auto it = pods_.find(request.path.back());
  if (it == pods_.end()) return Refuse(404, "NotFound", "no such pod");
  return Response{200, it->second.dump()};
}

absl::StatusOr<Response> FakeCluster::Watch(
    int64_t from, const kube::Cancellation* cancel,
    const kube::Transport::ChunkSink& chunk) {
  while (true) {
    std::string lines;
    {
      MutexLock lock(mu_);
      if (down_ || blind_) {
        return absl::UnavailableError("the server went down");
      }
      if (from < floor_) return Refuse(410, "Expired", "too old");
      for (const Change& change : history_) {
        if (change.version <= from) continue;
        lines += change.line;
        from = change.version;
      }
      if (lines.empty()) changed_.WaitFor(mu_, kCancelCheck);
    }
    if (cancel->cancelled()) return absl::CancelledError("cancelled");
    if (!lines.empty() && !chunk(lines)) {
      return absl::CancelledError("by its reader");
    }
  }
}

}  // namespace elasticdl::master::test
