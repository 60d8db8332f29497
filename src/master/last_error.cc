#include "last_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"

namespace elasticdl::master {
namespace {

// Of a log, where the last lines are.
constexpr off_t kTailBytes = 8192;
// For one line on a terminal.
constexpr size_t kMaxChars = 300;
// As common/log.cc writes it.
constexpr absl::string_view kLevel = "] [error] [";

std::string ReadTail(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return "";
  const off_t begin = std::max<off_t>(0, info.st_size - kTailBytes);
  std::string tail(static_cast<size_t>(info.st_size - begin), '\0');
  const ssize_t got = pread(fd.get(), tail.data(), tail.size(), begin);
  tail.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return tail;
}

}  // namespace

std::string LastErrorIn(const std::string& log_file) {
  const std::string tail = ReadTail(log_file);
  absl::string_view last;
  absl::string_view error;
  for (const absl::string_view line :
       absl::StrSplit(tail, '\n', absl::SkipWhitespace())) {
    last = line;
    if (absl::StrContains(line, kLevel)) error = line;
  }
  if (!error.empty()) {
    // Behind the name of the program.
    last = error.substr(error.find(kLevel) + kLevel.size());
    const size_t end = last.find("] ");
    if (end != last.npos) last.remove_prefix(end + 2);
  }
  return std::string(last.substr(0, kMaxChars));
}

}  // namespace elasticdl::master
