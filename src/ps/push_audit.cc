#include "push_audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/status.h"

namespace elasticdl::ps {
namespace {

using Json = nlohmann::ordered_json;

std::string ToLine(const Json& json) {
  // Names of files may hold anything.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ToJson(int server, int64_t number, const v1::PsPush& push,
            int64_t version) {
  return {
      {"server", server},      {"epoch", push.epoch()}, {"shard", push.shard()},
      {"begin", push.begin()}, {"end", push.end()},     {"version", version},
      {"entry", number},
  };
}

// Null unless it is an object.
Json Parse(absl::string_view line) {
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json();
}

bool IsNumber(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_number_integer();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushAudit>> PushAudit::Open(Options options) {
  std::unique_ptr<PushAudit> audit(new PushAudit(std::move(options)));
  const std::string& path = audit->options_.path;
  audit->fd_ =
      Fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!audit->fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open --ps_audit=", path));
  }
  ELASTICDL_RETURN_IF_ERROR(audit->FindEnd());
  return audit;
}

absl::Status PushAudit::FindEnd() {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(options_.path));
  const absl::string_view all = text;
  size_t whole = all.rfind('\n') + 1;
  if (whole > 0) {
    const Json first = Parse(all.substr(0, all.find('\n')));
    if (!IsNumber(first, "server")) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--ps_audit: ", options_.path, " is another kind of file"));
    }
    if (first.value("run", "") != options_.run) whole = 0;
  }
  if (whole < text.size() &&
      ftruncate(fd_.get(), static_cast<off_t>(whole)) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", options_.path));
  }
  for (const absl::string_view line :
       absl::StrSplit(all.substr(0, whole), '\n', absl::SkipEmpty())) {
    const Json json = Parse(line);
    if (IsNumber(json, "entry")) next_ = json["entry"].get<int64_t>() + 1;
    if (IsNumber(json, "term")) term_ = json["term"];
    if (IsNumber(json, "begins")) next_ = json["begins"];
    if (IsNumber(json, "follows")) next_ = json["follows"];
  }
  return absl::OkStatus();
}

absl::Status PushAudit::WriteLines(const std::string& lines) {
  const ssize_t n = write(fd_.get(), lines.data(), lines.size());
  if (n == static_cast<ssize_t>(lines.size())) return absl::OkStatus();
  return ErrnoToStatus(n < 0 ? errno : ENOSPC,
                       absl::StrCat("write --ps_audit=", options_.path));
}

absl::Status PushAudit::WriteTerm(const char* what, int64_t term,
                                  int64_t position) {
  if (term == 0) term = term_ + 1;
  ELASTICDL_RETURN_IF_ERROR(WriteLines(ToLine({{"server", options_.server},
                                               {"run", options_.run},
                                               {"term", term},
                                               {what, position}})));
  term_ = term;
  next_ = position;
  return absl::OkStatus();
}

absl::Status PushAudit::Write(int64_t number, const v1::PsEntry& entry,
                              int64_t version, const EntryEffect& effect) {
  if (number < next_) return absl::OkStatus();
  // The file of a server that has a log was lost.
  if (term_ == 0) ELASTICDL_RETURN_IF_ERROR(Begin(0, number));
  std::string lines;
  const auto add_map = [&](int64_t map, const char* what,
                           const std::vector<int>& buckets) {
    lines = ToLine({{"server", options_.server},
                    {"map", map},
                    {what, buckets},
                    {"entry", number}});
  };
  if (entry.has_push() && !entry.push().stage()) {
    Json json = ToJson(options_.server, number, entry.push(), version);
    if (effect.catch_up) {
      json["catch_up"] = true;
      json["buckets"] = effect.buckets;
    } else if (!effect.buckets.empty()) {
      json["but"] = effect.buckets;
    }
    lines = ToLine(json);
  } else if (entry.has_map()) {
    if (!entry.map().moves()) {
      add_map(entry.map().version(), "gets", effect.buckets);
    } else if (!effect.buckets.empty()) {
      add_map(entry.map().version(), "gives", effect.buckets);
    }
  } else if (entry.has_import()) {
    add_map(entry.import().map_version(), "gets", {entry.import().bucket()});
  }
  for (const v1::PsRanges& ranges : entry.commit().pushes()) {
    v1::PsPush push;
    push.set_shard(ranges.shard());
    push.set_epoch(ranges.epoch());
    push.set_begin(ranges.bounds(0));
    push.set_end(ranges.bounds(1));
    lines += ToLine(ToJson(options_.server, number, push, version));
  }
  if (lines.empty()) return absl::OkStatus();
  ELASTICDL_RETURN_IF_ERROR(WriteLines(lines));
  next_ = number + 1;
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
