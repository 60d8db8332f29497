#include "watch_core.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"

namespace elasticdl::kube {
namespace {

// etcd stores objects of up to 1.5 MB; much longer lines are not from an API
// server.
constexpr size_t kMaxLine = 64 << 20;

std::string KeyOf(const Json& object) {
  return absl::StrCat(TextAt(object, "/metadata/namespace"), "/",
                      TextAt(object, "/metadata/name"));
}

std::string UidOf(const Json& object) {
  return TextAt(object, "/metadata/uid");
}

WatchEvent Event(WatchEvent::Kind kind, Json object) {
  WatchEvent event;
  event.kind = kind;
  event.object = std::move(object);
  return event;
}

}  // namespace

WatchCore::WatchCore(Options options, uint64_t seed)
    : options_(options), backoff_(options.backoff, seed) {}

void WatchCore::ListAfter(absl::Duration delay) {
  resource_version_.clear();
  next_ = {delay, ""};
}

void WatchCore::WatchAfter(absl::Duration delay) {
  next_ = {delay, resource_version_};
}

void WatchCore::Trouble(const absl::Status& error, Events& out) {
  // Compare codes: messages may differ each time (they contain durations).
  if (error.code() == told_) return;
  told_ = error.code();
  WatchEvent event;
  event.kind = WatchEvent::Kind::kTrouble;
  event.error = error;
  out.push_back(std::move(event));
}

void WatchCore::Recovered(Events& out) {
  watch_refused_ = false;
  if (told_ == absl::StatusCode::kOk) return;
  told_ = absl::StatusCode::kOk;
  out.push_back(Event(WatchEvent::Kind::kRecovered, nullptr));
}

WatchCore::Events WatchCore::OnList(const absl::StatusOr<Json>& list) {
  Events out;
  absl::Status error = list.status();
  std::string version;
  if (list.ok()) {
    version = TextAt(*list, "/metadata/resourceVersion");
    if (version.empty()) {
      error = absl::UnavailableError("the list has no resourceVersion");
    }
  }
  if (!error.ok()) {
    Trouble(error, out);
    ListAfter(backoff_.Next());
    return out;
  }
  if (!watch_refused_) Recovered(out);
  std::map<std::string, Json> before = std::exchange(known_, {});
  Events listed;
  for (const Json& item : ListAt(*list, "/items")) {
    const std::string key = KeyOf(item);
    const auto old = before.find(key);
    // Another object with the same name: the one we knew was deleted.
    if (old != before.end() && UidOf(old->second) == UidOf(item)) {
      before.erase(old);
    }
    known_[key] = item;
    listed.push_back(Event(WatchEvent::Kind::kListed, item));
  }
  for (auto& [key, object] : before) {
    out.push_back(Event(WatchEvent::Kind::kDeleted, std::move(object)));
  }
  out.insert(out.end(), std::make_move_iterator(listed.begin()),
             std::make_move_iterator(listed.end()));
  out.push_back(Event(WatchEvent::Kind::kSynced, nullptr));
  resource_version_ = version;
  WatchAfter(absl::ZeroDuration());
  return out;
}

void WatchCore::OnWatchStart(absl::Time now) {
  partial_line_.clear();
  started_ = now;
  got_something_ = false;
  broken_ = false;
  broken_why_ = absl::OkStatus();
}

WatchCore::Events WatchCore::OnWatchBytes(absl::string_view bytes) {
  Events out;
  while (!bytes.empty() && !broken_) {
    const size_t end = bytes.find('\n');
    absl::string_view piece = bytes.substr(0, end);
    bytes.remove_prefix(end == absl::string_view::npos ? bytes.size()
                                                       : end + 1);
    partial_line_.append(piece.data(), piece.size());
    if (end == absl::string_view::npos) {
      if (partial_line_.size() > kMaxLine) {
        Break(absl::UnavailableError("a line of a watch is too long"));
      }
      break;
    }
    const std::string line = std::exchange(partial_line_, {});
    if (!absl::StripAsciiWhitespace(line).empty()) OnLine(line, out);
  }
  return out;
}

void WatchCore::OnLine(absl::string_view line, Events& out) {
  Json event = ParseJson(line);
  const auto object = event.is_object() ? event.find("object") : event.end();
  const std::string type = TextAt(event, "/type");
  if (!event.is_object() || object == event.end() || !object->is_object()) {
    Break(absl::UnavailableError("a line of a watch is not an event"));
    return;
  }
  if (type == "ERROR") {
    OnErrorEvent(*object);
    return;
  }
  got_something_ = true;
  expired_ = false;
  backoff_.Reset();
  Recovered(out);
  OnObject(type, std::move(*object), out);
}

void WatchCore::OnObject(const std::string& type, Json object, Events& out) {
  const std::string version = TextAt(object, "/metadata/resourceVersion");
  if (!version.empty()) resource_version_ = version;
  const std::string key = KeyOf(object);
  if (type == "ADDED" || type == "MODIFIED") {
    known_[key] = object;
    out.push_back(Event(type == "ADDED" ? WatchEvent::Kind::kAdded
                                        : WatchEvent::Kind::kModified,
                        std::move(object)));
  } else if (type == "DELETED") {
    known_.erase(key);
    out.push_back(Event(WatchEvent::Kind::kDeleted, std::move(object)));
  }
  // BOOKMARK carries only the version. Unknown kinds of events are ignored.
}

void WatchCore::OnErrorEvent(const Json& status) {
  Response response;
  response.code = static_cast<int>(NumberAt(status, "/code", 500));
  response.body = JsonText(status);
  absl::Status error = ToStatus(Request(), response);
  if (error.ok()) error = absl::UnavailableError("a watch reported ERROR");
  Break(std::move(error));
}

void WatchCore::Break(absl::Status why) {
  broken_ = true;
  broken_why_ = std::move(why);
}

WatchCore::Events WatchCore::OnWatchEnd(const absl::Status& ended,
                                        absl::Time now) {
  Events out;
  partial_line_.clear();
  const absl::Status status = broken_ ? broken_why_ : ended;
  if (absl::IsOutOfRange(status)) {
    const bool again = std::exchange(expired_, true);
    ListAfter(again ? backoff_.Next() : absl::ZeroDuration());
  } else if (broken_) {
    ListAfter(backoff_.Next());
  } else if (got_something_ || now - started_ >= options_.healthy_after) {
    Recovered(out);
    WatchAfter(absl::ZeroDuration());
  } else if (status.ok()) {
    WatchAfter(backoff_.Next());
  } else {
    Trouble(status, out);
    watch_refused_ =
        !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
    ListAfter(backoff_.Next());
  }
  return out;
}

}  // namespace elasticdl::kube
