// A worker's exchange with the servers, minibatch by minibatch: everything that
// a minibatch needs is pulled with one request to each server, if possible
// while the previous one is computed; its gradients are pushed while the next
// one is computed.
//
//   training thread   compute k          compute k+1        compute k+2
//   ServerCalls       push k-1, pull k+1 push k, pull k+2   push k+1, …
//
// So a minibatch does not see the worker's own last push, just as it does not
// see pushes of others that are in progress. Without overlap, each call is
// waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "elasticdl/model/types.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/v1/ps.pb.h"
#include "id_sources.h"
#include "minibatch.h"
#include "replica.h"
#include "server_calls.h"
#include "server_dense.h"
#include "server_rows.h"

namespace elasticdl::worker {

// Runs on the training thread. `client` may be used directly when Finish has
// returned and nothing was begun since.
class ServerPipe {
 public:
  // What it is given must outlive it.
  ServerPipe(ps::Client& client, Replica& replica, bool overlap);

  RowSource* rows() { return &rows_; }
  const absl::Status& rows_status() const { return rows_.status(); }
  ServerDense& dense() { return dense_; }
  const ServerDense& dense() const { return dense_; }

  // The network gets what it needs for this minibatch, with the dense values if
  // `dense`. NOT_FOUND: a server has no model.
  absl::Status Pull(const Minibatch& minibatch, const Features& features,
                    bool dense);
  // Begins that for the minibatch that comes next. Nothing without overlap.
  void PullAhead(const Minibatch& minibatch, const Features& features,
                 bool dense);
  // The network gets the newest dense values; rows are pulled as layers ask for
  // them.
  absl::Status Refresh();
  // The lowest version of a server in the last pull of dense values.
  int64_t version() const { return version_; }
  // The same in any pull for this minibatch.
  int64_t oldest_version() const;

  // After backward. What was pushed before must be finished. The model's
  // gradients may be overwritten when it returns.
  void Push(v1::PsPush push, const Features& features);
  // Waits for the push under way, if any: OK when all servers have it.
  absl::Status FinishPush();
  // Waits for everything; what was pulled ahead is dropped.
  absl::Status Finish();

 private:
  struct Pulled {
    const Minibatch* minibatch = nullptr;
    bool dense = false;
    std::vector<TableRows> rows;
    int64_t version = -1;
    std::vector<int64_t> versions;
    // Shared with ServerCalls; null before it is begun.
    std::shared_ptr<ServerCalls::Ticket> ticket;
  };

  std::shared_ptr<Pulled> Prepare(const Minibatch& minibatch,
                                  const Features& features, bool dense) const;
  absl::Status Fetch(Pulled& pulled);
  absl::Status PullRowsNow(absl::Span<const ps::PullRows> rows);
  void NoteVersions(const std::vector<int64_t>& versions);

  ps::Client& client_;
  Replica& replica_;
  const bool overlap_;
  ServerRows rows_;
  ServerDense dense_;
  IdSources sources_;
  int64_t version_ = 0;
  // By server: the oldest version in what this minibatch is computed on.
  std::vector<int64_t> base_;
  // Shared with the call that fills it.
  std::shared_ptr<Pulled> ahead_;
  std::shared_ptr<ServerCalls::Ticket> push_;

  // Last: its thread uses what is above.
  ServerCalls calls_;
};

}  // namespace elasticdl::worker
