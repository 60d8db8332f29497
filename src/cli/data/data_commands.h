// The commands below `elasticdl data` and what they share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace elasticdl::cli {

// Each takes the arguments after its name and returns the exit code.
int RunDataConvert(const std::vector<std::string>& args);
int RunDataFetch(const std::vector<std::string>& args);
int RunDataGenerate(const std::vector<std::string>& args);
int RunDataInfo(const std::vector<std::string>& args);
int RunDataHead(const std::vector<std::string>& args);
int RunDataVerify(const std::vector<std::string>& args);

// Prints "elasticdl data: <error>" to stderr and returns the exit code 1.
int DataFailed(const absl::Status& status);

// "1.4 GB".
std::string FormatBytes(double bytes);

// Shows progress on stderr: on a terminal a bar that is redrawn, otherwise a
// line every 10 %. Thread-compatible.
class ProgressBar {
 public:
  // `unit`: "records".
  ProgressBar(std::string title, std::string unit);
  ~ProgressBar() { Finish(); }

  void set_title(const std::string& title);
  // total 0: unknown.
  void Update(int64_t done, int64_t total);
  // Ends the line; idempotent.
  void Finish();

 private:
  void DrawBar(int64_t done, int64_t total);

  std::string title_;
  const std::string unit_;
  const bool terminal_;
  bool open_ = false;  // a line without its end
  int64_t last_tenth_ = 0;
  absl::Time started_;
  absl::Time last_drawn_;
};

}  // namespace elasticdl::cli
