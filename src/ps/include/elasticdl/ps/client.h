// A worker's side of the parameter servers: cuts values and gradients into the
// servers' parts, asks all servers at once, and asks again when one was away.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/bucket.h"
#include "elasticdl/v1/ps.pb.h"

namespace elasticdl::ps {

// Rows of one table: `ids` ascend, none is twice; row i is
// rows[i * dim, (i + 1) * dim).
struct PullRows {
  uint32_t table = 0;
  absl::Span<const int64_t> ids;
  float* rows = nullptr;
};
struct PushRows {
  uint32_t table = 0;
  absl::Span<const int64_t> ids;
  const float* gradients = nullptr;
};

// Thread-compatible, except Cancel.
class Client {
 public:
  struct Options {
    std::string secret;
    // Where server i is now. Asked before each connection: a server that was
    // replaced may be elsewhere. Must return within `timeout`.
    std::function<absl::StatusOr<net::Address>(int server,
                                               absl::Duration timeout)>
        find;
    // How long one call may take altogether, absences of servers included.
    absl::Duration patience = absl::Minutes(10);
    // How long somebody else may answer at a server's address: another job may
    // have got the port of a server that died.
    absl::Duration stranger_patience = absl::Seconds(15);
  };
  Client(Options options, BucketMap map);
  ~Client();

  // Tells all servers what the model is and which buckets they hold.
  absl::Status Define(const v1::PsDefinition& definition);
  // `values`: all dense values in the definition's order. The first worker's
  // win; whoever comes later learns the values by Pull.
  absl::Status SetInitialValues(const float* values);

  // Rows of the tables, and dense values into `values` where a server has newer
  // ones than this client has seen (null: no dense values). Returns the lowest
  // version of a server.
  absl::StatusOr<int64_t> Pull(float* values, absl::Span<const PullRows> rows);

  // What a push needs besides its gradients. Fields of v1::PsPush; the map's
  // version and the base version are filled in.
  // OK: every server has it, be it from this call or from an earlier one.
  // `gradients` null: no dense part.
  absl::Status Push(const v1::PsPush& push, const float* gradients,
                    absl::Span<const PushRows> rows);

  // What each server says of itself.
  absl::StatusOr<std::vector<v1::PsReply>> Status(bool digest);

  // All calls under way and to come fail with CANCELLED. Any thread.
  void Cancel();

 private:
  class Lane;
  struct Call;

  std::vector<Call> MakeCalls() const;
  // `answer_timeout`: without a byte of the answer.
  absl::Status Run(std::vector<Call>& calls, absl::Duration answer_timeout);
  absl::Status Run(std::vector<Call>& calls);
  absl::Status Round(std::vector<Call>& calls, absl::Time end,
                     absl::Duration answer_timeout);
  // Which server holds each id of a table.
  void Split(uint32_t table, absl::Span<const int64_t> ids,
             std::vector<std::vector<uint32_t>>& positions) const;

  Mutex mu_;
  CondVar cancel_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;

  const Options options_;
  const BucketMap map_;
  v1::PsDefinition definition_;
  // By server.
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace elasticdl::ps
