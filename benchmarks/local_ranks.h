// Ranks of a benchmark on this host: processes that are members of one world,
// without a master.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::benchmarks {

// Timeout for everything that a rank waits for.
constexpr absl::Duration kTimeout = absl::Seconds(60);

// Prints `why` to stderr and exits at once.
[[noreturn]] void Die(const std::string& why);
void Check(const absl::Status& status);

// A text over a pipe.
void WriteText(int fd, const std::string& text);
std::string ReadText(int fd);

using RankFunction =
    std::function<void(std::unique_ptr<collective::Communicator>)>;

// Forks `size` ranks that run `function` with a communicator of `backend` and
// exit. Returns a stream of rank 0's stdout; after reading it, the caller
// passes it to FinishRanks. Only one set of ranks at a time; the caller must
// have no threads.
FILE* RunRanks(const std::string& backend, int size,
               const RankFunction& function);

// Waits for the ranks. Dies if one failed.
void FinishRanks(FILE* output);

}  // namespace elasticdl::benchmarks
