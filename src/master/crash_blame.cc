#include "crash_blame.h"

#include <algorithm>

namespace elasticdl::master {

void CrashBlame::OnCrash(int64_t worker_id, int tasks) {
  ++crashes_without_commit_;
  ++unproven_crashes_;
  // One task more than enough crashes to convict it may be under way, hence the
  // factor of two.
  if (tasks > 0 && crashes_without_commit_ <= to_convict_ &&
      unproven_crashes_ <= 2 * to_convict_) {
    blamed_on_task_.insert(worker_id);
  }
}

void CrashBlame::BeCareful(int64_t records_done, bool evaluating) {
  careful_until_ = std::max(careful_until_, records_done);
  careful_evaluation_ = evaluating;
}

void CrashBlame::OnQuarantined(int64_t failures) {
  // One more than its failures: the first crash was not held against it.
  unproven_crashes_ = std::max<int64_t>(0, unproven_crashes_ - (failures + 1));
}

bool CrashBlame::IsCareful(v1::TaskType type, int64_t records_done) const {
  if (type == v1::EVALUATION) return careful_evaluation_;
  return careful_until_ > 0 && records_done < careful_until_;
}

}  // namespace elasticdl::master
