// Process-wide log. One line per call: time, level, program, message.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical };

// Parses DEBUG, INFO, WARNING, ERROR, CRITICAL (any case). False if unknown.
bool ParseLogLevel(absl::string_view text, LogLevel& level);

// Lines for programs instead of people: JSON objects with time, level, job, pod
// (the tag), generation, step and message. Call before InitLog.
void UseJsonLog();
// What JSON lines have of the job; empty and below 0 are left out. Any thread,
// any time.
void SetLogJob(absl::string_view job);
void SetLogPosition(int64_t generation, int64_t step);

// Sets the tag shown in each line and the minimum level. Call once in main;
// lines go to stderr.
void InitLog(absl::string_view tag, LogLevel level);

// Also appends all lines to a file. Call before InitLog, which sets the format
// of its lines.
absl::Status AddLogFile(const std::string& path);

bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, absl::string_view message);

// LogInfo("worker ", id, " joined"): the arguments are those of absl::StrCat.
template <typename... Args>
void LogDebug(const Args&... args) {
  if (LogEnabled(LogLevel::kDebug)) {
    LogLine(LogLevel::kDebug, absl::StrCat(args...));
  }
}
template <typename... Args>
void LogInfo(const Args&... args) {
  if (LogEnabled(LogLevel::kInfo)) {
    LogLine(LogLevel::kInfo, absl::StrCat(args...));
  }
}
template <typename... Args>
void LogWarning(const Args&... args) {
  LogLine(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  LogLine(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace elasticdl
