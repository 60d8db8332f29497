#include "push_audit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "elasticdl/common/status.h"

namespace elasticdl::ps {
namespace {

std::string Line(int server, int64_t number, const v1::PsPush& push,
                 int64_t version, bool catch_up) {
  nlohmann::ordered_json line = {
      {"server", server},      {"epoch", push.epoch()}, {"shard", push.shard()},
      {"begin", push.begin()}, {"end", push.end()},     {"version", version},
      {"entry", number},
  };
  if (catch_up) line["catch_up"] = true;
  // Names of files may hold anything.
  return line.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushAudit>> PushAudit::Open(
    const std::string& path, int server) {
  std::unique_ptr<PushAudit> audit(new PushAudit(path, server));
  audit->fd_ =
      Fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!audit->fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open --ps_audit=", path));
  }
  ELASTICDL_RETURN_IF_ERROR(audit->FindEnd());
  return audit;
}

absl::Status PushAudit::FindEnd() {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_));
  absl::string_view lines = text;
  const size_t end = lines.rfind('\n');
  lines = lines.substr(0, end == lines.npos ? 0 : end + 1);
  if (lines.size() < text.size() &&
      ftruncate(fd_.get(), static_cast<off_t>(lines.size())) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("truncate ", path_));
  }
  if (lines.empty()) return absl::OkStatus();
  lines.remove_suffix(1);
  const size_t last = lines.rfind('\n');
  const auto json = nlohmann::json::parse(
      lines.substr(last == lines.npos ? 0 : last + 1), nullptr,
      /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("entry") ||
      !json["entry"].is_number_integer()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--ps_audit: ", path_, " is another kind of file"));
  }
  next_ = json["entry"].get<int64_t>() + 1;
  return absl::OkStatus();
}

absl::Status PushAudit::Clear() {
  next_ = 0;
  if (ftruncate(fd_.get(), 0) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("truncate ", path_));
}

absl::Status PushAudit::Write(int64_t number, const v1::PsEntry& entry,
                              int64_t before, int64_t after) {
  if (number < next_) return absl::OkStatus();
  std::string lines;
  if (entry.has_push() && !entry.push().stage()) {
    lines = Line(server_, number, entry.push(), after, before == after);
  }
  for (const v1::PsRanges& ranges : entry.commit().pushes()) {
    v1::PsPush push;
    push.set_shard(ranges.shard());
    push.set_epoch(ranges.epoch());
    push.set_begin(ranges.bounds(0));
    push.set_end(ranges.bounds(1));
    lines += Line(server_, number, push, after, /*catch_up=*/false);
  }
  if (lines.empty()) return absl::OkStatus();
  // All at once: who is killed here leaves all of them or none.
  const ssize_t n = write(fd_.get(), lines.data(), lines.size());
  if (n != static_cast<ssize_t>(lines.size())) {
    return ErrnoToStatus(n < 0 ? errno : ENOSPC,
                         absl::StrCat("write --ps_audit=", path_));
  }
  next_ = number + 1;
  return absl::OkStatus();
}

}  // namespace elasticdl::ps
