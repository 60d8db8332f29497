#include "kept_heirs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace elasticdl::master {
namespace {

// Before their worlds were level.
constexpr int64_t kMostEarlyCrashes = 2;

}  // namespace

KeptHeirs::KeptHeirs(int64_t task_max_failures)
    : most_crashes_(std::max(kMostEarlyCrashes, task_max_failures + 1)) {}

void KeptHeirs::OnChosen(int64_t lineage, int64_t step) {
  if (lineage == lineage_ && step == step_) return;
  lineage_ = lineage;
  step_ = step;
  heirs_.clear();
  level_.clear();
  crashed_.clear();
}

void KeptHeirs::OnCommit(int64_t step) {
  if (step > step_) OnChosen(lineage_, step);
}

void KeptHeirs::OnCrash(int64_t worker_id) {
  const auto heir = heirs_.find(worker_id);
  if (heir == heirs_.end()) return;
  crashed_.insert(heir->second);
  // Later, a task that it held may be to blame.
  if (level_.count(heir->second) == 0) blamed_on_state_.insert(worker_id);
}

std::string KeptHeirs::Verdict() const {
  const auto all = static_cast<int64_t>(crashed_.size());
  const int64_t early =
      std::count_if(crashed_.begin(), crashed_.end(),
                    [this](int64_t world) { return level_.count(world) == 0; });
  if (early >= kMostEarlyCrashes) {
    return absl::StrCat(early, " worlds crashed when they took over step ",
                        step_);
  }
  if (all >= most_crashes_) {
    return absl::StrCat(all, " worlds that began with step ", step_,
                        " crashed before the next one");
  }
  return "";
}

}  // namespace elasticdl::master
