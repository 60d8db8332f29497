// Jobs whose model is on parameter servers.
#include <utility>

#include "job_controller.h"

namespace elasticdl::master {

void JobController::SetServers(v1::Servers servers) {
  servers_ = std::move(servers);
}

void JobController::OnServerAttached(absl::Time now, int server) {}

void JobController::OnServerMessage(absl::Time now, int server,
                                    const v1::WorkerMessage& message) {}

}  // namespace elasticdl::master
