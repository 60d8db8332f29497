// The loop of `elasticdl top`: queries the job once a second, draws, handles
// keys.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "job_handle.h"
#include "top/render.h"
#include "top/terminal.h"

namespace elasticdl::cli {

struct TopOptions {
  bool color = false;
  bool unicode = true;
  // Ends the process of a pod of this machine.
  std::function<absl::Status(int64_t pid)> kill;
};

// Returns when the user quits or the job has ended; an error when it does not
// answer.
absl::Status WatchTop(JobHandle& job, Terminal& terminal,
                      const TopOptions& options);

}  // namespace elasticdl::cli
