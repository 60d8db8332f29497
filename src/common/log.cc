#include "elasticdl/common/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kCritical:
      return spdlog::level::critical;
  }
  return spdlog::level::info;
}

// Leaked on purpose: threads may still log while the process exits.
spdlog::logger& Logger() {
  static auto* logger = [] {
    auto* made = new spdlog::logger(
        "elasticdl", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

// What JSON lines tell besides the message. Leaked, too.
struct LogContext {
  std::atomic<bool> json = false;
  std::atomic<int64_t> generation = -1;
  std::atomic<int64_t> step = -1;
  Mutex mu;
  std::string job ABSL_GUARDED_BY(mu);
};

LogContext& Context() {
  static auto* context = new LogContext;
  return *context;
}

// One JSON object per line.
class JsonFormatter : public spdlog::formatter {
 public:
  explicit JsonFormatter(std::string pod) : pod_(std::move(pod)) {}

  void format(const spdlog::details::log_msg& line,
              spdlog::memory_buf_t& out) override {
    LogContext& context = Context();
    nlohmann::ordered_json json;
    json["time"] =
        absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", absl::FromChrono(line.time),
                         absl::UTCTimeZone());
    const spdlog::string_view_t level =
        spdlog::level::to_string_view(line.level);
    json["level"] = std::string(level.data(), level.size());
    {
      MutexLock lock(context.mu);
      if (!context.job.empty()) json["job"] = context.job;
    }
    json["pod"] = pod_;
    if (context.generation >= 0) json["generation"] = context.generation.load();
    if (context.step >= 0) json["step"] = context.step.load();
    json["message"] = std::string(line.payload.data(), line.payload.size());
    const std::string text = JsonText(json) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>(pod_);
  }

 private:
  const std::string pod_;
};

}  // namespace

void UseJsonLog() { Context().json = true; }

void SetLogJob(absl::string_view job) {
  MutexLock lock(Context().mu);
  Context().job = std::string(job);
}

void SetLogPosition(int64_t generation, int64_t step) {
  Context().generation.store(generation, std::memory_order_relaxed);
  Context().step.store(step, std::memory_order_relaxed);
}

bool ParseLogLevel(absl::string_view text, LogLevel& level) {
  const std::string upper = absl::AsciiStrToUpper(text);
  if (upper == "DEBUG") {
    level = LogLevel::kDebug;
  } else if (upper == "INFO") {
    level = LogLevel::kInfo;
  } else if (upper == "WARNING") {
    level = LogLevel::kWarning;
  } else if (upper == "ERROR") {
    level = LogLevel::kError;
  } else if (upper == "CRITICAL") {
    level = LogLevel::kCritical;
  } else {
    return false;
  }
  return true;
}

void InitLog(absl::string_view tag, LogLevel level) {
  Logger().set_level(ToSpdlog(level));
  if (Context().json) {
    Logger().set_formatter(std::make_unique<JsonFormatter>(std::string(tag)));
    return;
  }
  Logger().set_pattern(
      absl::StrCat("[%Y-%m-%d %H:%M:%S.%e] [%l] [", tag, "] %v"));
}

absl::Status AddLogFile(const std::string& path) {
  try {
    Logger().sinks().push_back(
        std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::UnavailableError(
        absl::StrCat("open log file ", path, ": ", error.what()));
  }
  return absl::OkStatus();
}

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, absl::string_view message) {
  Logger().log(ToSpdlog(level),
               spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace elasticdl
