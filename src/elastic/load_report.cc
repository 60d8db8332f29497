#include "elasticdl/elastic/load_report.h"

#include <algorithm>
#include <utility>

namespace elasticdl::elastic {

// Often enough to be displayed, and several times within the limit.
LoadReport::LoadReport(int64_t generation, absl::Duration limit,
                       std::function<void(v1::WorkerMessage)> send)
    : generation_(generation),
      interval_(std::min(absl::Seconds(1), limit / 4)),
      send_(std::move(send)) {}

void LoadReport::Tell(absl::Time now, v1::Loading::Stage stage, int64_t bytes,
                      int64_t total) {
  if (stage_ == stage && now - sent_ < interval_) return;
  stage_ = stage;
  sent_ = now;
  v1::WorkerMessage message;
  v1::Loading& loading = *message.mutable_loading();
  loading.set_generation(generation_);
  loading.set_stage(stage);
  loading.set_bytes(bytes);
  loading.set_total_bytes(total);
  send_(std::move(message));
}

}  // namespace elasticdl::elastic
