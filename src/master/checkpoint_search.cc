#include "checkpoint_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"

namespace elasticdl::master {
namespace {

bool IsSame(const checkpoint::Version& a, const checkpoint::Version& b) {
  return a.path == b.path && a.lineage.run == b.lineage.run &&
         a.lineage.generation == b.lineage.generation;
}

}  // namespace

absl::StatusOr<CheckpointAnswer> SearchCheckpoint(
    const CheckpointStore& store, const CheckpointQuery& query,
    const checkpoint::LoadProgress& progress) {
  CheckpointAnswer answer;
  if (!query.doubtful.empty() && store.verify) {
    const absl::Status verified = store.verify(query.doubtful, progress);
    if (verified.ok()) {
      answer.is_whole = answer.keeps_base = true;
      return answer;
    }
    if (!absl::IsDataLoss(verified) && !absl::IsNotFound(verified)) {
      return verified;
    }
  }
  absl::StatusOr<std::vector<checkpoint::Version>> listed = store.list();
  // Before the first save the directory need not exist. After it, a missing
  // directory means that the disk is not mounted.
  if (absl::IsNotFound(listed.status()) && !query.history.has_saved()) {
    listed = std::vector<checkpoint::Version>();
  }
  if (!listed.ok()) return listed.status();
  const std::vector<checkpoint::Version>& found = *listed;
  const std::optional<checkpoint::Version>& base = query.history.base();
  // It was complete at the rollback, but may have been deleted since.
  if (query.at_base && base.has_value() &&
      std::any_of(found.begin(), found.end(), [&](const auto& version) {
        return IsSame(version, *base);
      })) {
    answer.keeps_base = true;
    return answer;
  }
  for (const checkpoint::Version& version :
       query.history.Usable(found, query.step)) {
    absl::StatusOr<v1::Ledger> ledger = store.load_ledger(version.path);
    if (!ledger.ok() && !absl::IsDataLoss(ledger.status()) &&
        !absl::IsNotFound(ledger.status())) {
      return ledger.status();
    }
    if (!ledger.ok()) {
      LogWarning("falling back past ", version.path, ": ",
                 ledger.status().message());
      continue;
    }
    answer.version = version;
    answer.ledger = *std::move(ledger);
    return answer;
  }
  if (query.bad_start.has_value()) {
    answer.start = absl::NotFoundError("there is no other checkpoint");
    if (store.older_start) answer.start = store.older_start(*query.bad_start);
    const absl::Status& status = answer.start.status();
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return answer;
}

CheckpointSearcher::CheckpointSearcher(
    CheckpointStore store, std::function<void(CheckpointAnswer answer)> answer,
    Patience patience)
    : store_(std::move(store)),
      answer_(std::move(answer)),
      patience_(patience),
      queries_(std::numeric_limits<size_t>::max()),
      thread_("checkpoints", [this] { Run(); }) {}

void CheckpointSearcher::Run() {
  while (const std::optional<CheckpointQuery> query = queries_.Pop()) {
    if (queries_.closed()) return;
    CheckpointAnswer answer = SearchPatiently(*query);
    if (queries_.closed()) return;
    answer_(std::move(answer));
  }
}

CheckpointAnswer CheckpointSearcher::SearchPatiently(
    const CheckpointQuery& query) {
  // Counted from the first failure: verifying a large version may take longer
  // than the patience.
  std::optional<absl::Time> end;
  const auto go_on = [this](int64_t /*bytes*/, int64_t /*total_bytes*/) {
    return stop_.closed() ? absl::AbortedError("the job ends")
                          : absl::OkStatus();
  };
  while (true) {
    absl::StatusOr<CheckpointAnswer> answer =
        SearchCheckpoint(store_, query, go_on);
    if (answer.ok()) return *std::move(answer);
    CheckpointAnswer failed;
    failed.error = answer.status();
    const absl::Time now = Clock::Real().Now();
    if (!end.has_value()) end = now + patience_.all;
    if (now >= *end || stop_.closed()) return failed;
    LogWarning("the checkpoints cannot be read: ", answer.status().message(),
               "; trying again");
    stop_.Pop(patience_.pause);
  }
}

void CheckpointSearcher::Stop() {
  queries_.Close();
  stop_.Close();
}

CheckpointSearcher::~CheckpointSearcher() {
  Stop();
  thread_.Join();
}

}  // namespace elasticdl::master
