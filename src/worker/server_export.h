// --output of a job with parameter servers.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/model/loader.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::worker {

struct ServerModel {
  model::Model& model;
  // With the newest dense values.
  const model::Network& network;
  ps::Client& client;
  uint64_t seed = 0;
};

// If the ids of all tables are bounded (input_dim), the files of ExportTo with
// the whole model, as any other strategy writes them. Otherwise these files
// have no tables of elasticdl::Embedding; the files of `tables/` (row_files.h)
// have their rows. Says what is there.
absl::StatusOr<v1::ExportedRows> ExportFromServers(const std::string& dir,
                                                   const ServerModel& served);

}  // namespace elasticdl::worker
