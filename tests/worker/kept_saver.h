// A saver that keeps what it is given; the test says how each save ends.
#pragma once

#include <utility>
#include <vector>

#include "elasticdl/checkpoint/async_saver.h"
#include "elasticdl/checkpoint/snapshot.h"

namespace elasticdl::worker::test {

class KeptSaver : public checkpoint::Saver {
 public:
  struct Save {
    checkpoint::OwnedSnapshot snapshot;
    Done done;
  };
  // `saves` must outlive it. `live`: nothing is too small to be read while it
  // changes.
  explicit KeptSaver(std::vector<Save>& saves, bool live = false)
      : saves_(saves), live_(live) {}
  LiveRule live_rule() const override {
    LiveRule rule;
    if (live_) rule.least_bytes = 1;
    rule.options.slice_bytes = 64;
    return rule;
  }
  void Submit(checkpoint::OwnedSnapshot snapshot, Done done) override {
    saves_.push_back({std::move(snapshot), std::move(done)});
  }
  absl::Status Flush(absl::Duration) override {
    return saves_.empty() ? absl::OkStatus()
                          : absl::DeadlineExceededError("slow disk");
  }

 private:
  std::vector<Save>& saves_;
  const bool live_;
};

}  // namespace elasticdl::worker::test
