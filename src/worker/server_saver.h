// Checkpoints of a model that is on parameter servers: one worker reads it from
// all of them and saves it, or restores new servers from a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/snapshot.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/model/sharding.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/v1/master.pb.h"
#include "event.h"
#include "replica.h"
#include "row_spool.h"
#include "server_dense.h"

namespace elasticdl::worker {

// Runs on the training thread.
class ServerSaver {
 public:
  struct Deps {
    ps::Client& client;
    Replica& replica;
    ServerDense& dense;
    SendFunction send;
    const Clock& clock;
    // For checkpoints.
    std::string folder;
  };
  // `saver` may be null: then nothing is saved. What `deps` refers to must
  // outlive this.
  ServerSaver(const Deps& deps, std::unique_ptr<checkpoint::Saver> saver)
      : deps_(deps), saver_(std::move(saver)) {}

  // Reads the model; the master answers with its ledger.
  void OnSaveNow(const v1::SaveNow& save);
  void OnLedger(const v1::LedgerReply& reply);
  // Waits for the save under way, if any.
  void Flush();

  // Gives the servers the model of a checkpoint, unless they have one.
  // FAILED_PRECONDITION when it is of another model.
  absl::Status Restore(checkpoint::Loaded& loaded);

 private:
  // A model that was read, and the rows that its tables look at.
  struct Model {
    checkpoint::OwnedSnapshot owned;
    std::shared_ptr<const void> rows;
  };
  absl::StatusOr<Model> Read();
  absl::StatusOr<Model> ReadDense();
  // The version that was read.
  absl::StatusOr<int64_t> ReadTable(uint32_t table, RowSpool& into);
  absl::Status RestoreTable(const checkpoint::Loaded& loaded, uint32_t table);

  const Deps deps_;
  const std::unique_ptr<checkpoint::Saver> saver_;
  // Read, and waiting for its ledger.
  std::optional<Model> waiting_;
};

}  // namespace elasticdl::worker
