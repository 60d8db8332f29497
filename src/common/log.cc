#include "elasticdl/common/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "absl/strings/ascii.h"

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

}  // namespace

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
