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

// For anything that a rank waits for.
constexpr absl::Duration kTimeout = absl::Seconds(60);

// Ends the process at once, with `why` on stderr.
[[noreturn]] void Die(const std::string& why);
void Check(const absl::Status& status);

using RankFunction =
    std::function<void(std::unique_ptr<collective::Communicator>)>;

// Forks `size` ranks that run `function` with a communicator of `backend` and
// end. Returns what rank 0 prints to stdout, as it comes; at its end the caller
// passes it to FinishRanks. One set of ranks at a time; the caller has no
// threads.
FILE* RunRanks(const std::string& backend, int size,
               const RankFunction& function);

// Waits for the ranks. Dies when one failed.
void FinishRanks(FILE* output);

}  // namespace elasticdl::benchmarks
