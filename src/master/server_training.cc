#include "server_training.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/log.h"

namespace elasticdl::master {
namespace {

// Of a server that says nothing about itself. It tells every second; a snapshot
// of a large state holds it up for a while.
constexpr absl::Duration kStuck = absl::Seconds(15);

}  // namespace

ServerTraining::ServerTraining(const Options& options, const Job& job,
                               Host& host, absl::Time now)
    : options_(options),
      tasks_(job.tasks),
      registry_(job.registry),
      checkpoints_(job.checkpoints),
      port_(job.port),
      observer_(job.observer),
      host_(host),
      versions_(options.versions),
      saves_(options.saves,
             options.restore_from.empty() ? 0 : options.restore_step,
             absl::ToUnixMicros(now)),
      moves_(options.versions.servers) {}

void ServerTraining::Advance(absl::Time now) {
  AdvanceSave(now);
  AdvanceMoves(now);
  AdvanceVersions(now);
  AdvanceLeavers(now);
}

// ---- asynchronous ----

int64_t ServerTraining::CountMinibatches(
    const std::vector<CommittedRange>& ranges) const {
  // Tasks begin and end at multiples of the minibatch size, or at the end of a
  // block.
  const int64_t size = options_.minibatch_size;
  int64_t minibatches = 0;
  for (const CommittedRange& range : ranges) {
    minibatches += (range.end - range.begin + size - 1) / size;
  }
  return minibatches;
}

void ServerTraining::OnPushed(absl::Time now, int64_t worker_id,
                              const v1::Progress& progress, int64_t& known) {
  if (progress.totals_size() != 1 ||
      progress.totals(0).worker_id() != worker_id) {
    LogWarning("report of worker ", worker_id, " refused: not its own");
    return;
  }
  const int64_t records = progress.totals(0).records() - known;
  if (records == 0) return;
  host_.BeginCommit(tasks_.step());
  const auto ranges = tasks_.CommitNext(now, worker_id, records);
  if (!ranges.ok()) {
    return host_.Fail(
        now, absl::StrCat("the ledger is wrong: ", ranges.status().message()));
  }
  const bool first = !host_.HasTrained();
  known += records;
  const int64_t step = tasks_.step() + CountMinibatches(*ranges);
  for (const CommittedRange& range : *ranges) {
    saves_.OnCommit(range);
    observer_.OnCommit(range, step, /*generation=*/0);
  }
  host_.EndCommit(now, step, records);
  v1::Progress counted = progress;
  counted.set_step(step);
  TellStep(first, counted, records);
}

void ServerTraining::TellStep(bool first, const v1::Progress& progress,
                              int64_t records) {
  if (first) observer_.OnFirstStep(/*generation=*/0, progress.step());
  observer_.OnProgress(progress, records);
}

// ---- synchronous ----

void ServerTraining::OnStaged(int64_t worker_id, const v1::Staged& staged) {
  const v1::LedgerRange& range = staged.range();
  const auto next = tasks_.NextUncommitted(worker_id);
  VersionRounds::Gradient gradient;
  gradient.worker_id = worker_id;
  gradient.range = range;
  gradient.base_version = staged.base_version();
  gradient.learning_rate = staged.learning_rate();
  gradient.loss = staged.loss();
  // Said again to a new master: the one before had committed it and could not
  // answer.
  if (!next.has_value() || next->shard() != range.shard() ||
      next->epoch() != range.epoch() || next->begin() != range.begin()) {
    if (versions_.open()) {
      in_open_version_.push_back(gradient);
    } else {
      SendPushResult(worker_id, range, versions_.version());
    }
    return;
  }
  // Servers drop what was staged for an older map.
  if (staged.map_version() != moves_.map().version() ||
      !versions_.Add(gradient)) {
    stale_.push_back(std::move(gradient));
    SendStale();
  }
}

void ServerTraining::SendStale() {
  // Before that, some server would give out the old version once more, or know
  // an old map only.
  if (versions_.open() || moves_.open()) return;
  for (const VersionRounds::Gradient& stale : std::exchange(stale_, {})) {
    SendPushResult(stale.worker_id, stale.range, 0);
  }
}

void ServerTraining::AdvanceVersions(absl::Time now) {
  if (tasks_.TrainingDone() || saves_.holds_training() || moves_.open() ||
      BrokenOff()) {
    return;
  }
  // Who holds data and has no gradient here is computing one.
  bool more = false;
  for (const auto& [connection, worker] : registry_.workers()) {
    more |= worker.ready && !worker.leaving && !worker.stop_sent &&
            !versions_.Waits(worker.id) &&
            tasks_.NumHeld(worker.id, v1::TRAINING) > 0;
  }
  const auto gradients = versions_.Next(more);
  if (gradients.empty()) return;
  v1::PsCommit& commit = versions_.mutable_commit();
  commit.set_learning_rate(gradients[0].learning_rate);
  commit.set_map_version(moves_.map().version());
  commit.set_oldest_epoch(tasks_.OldestEpoch());
  // From here on it is decided: all servers have the gradients, and what is
  // recorded is sent to them until they have applied it.
  v1::JournalRecord record;
  *record.mutable_version() = commit;
  host_.Record(record);
  CommitVersion(now, gradients);
  in_open_version_ = gradients;
  for (int server = 0; server < moves_.map().servers(); ++server) {
    SendCommit(server);
  }
  for (VersionRounds::Gradient& stale : versions_.TakeStale()) {
    stale_.push_back(std::move(stale));
  }
}

void ServerTraining::CommitVersion(
    absl::Time now, const std::vector<VersionRounds::Gradient>& gradients) {
  const int64_t version = versions_.version();
  const bool first = !host_.HasTrained();
  host_.BeginCommit(version);
  v1::Progress progress;
  progress.set_step(version);
  progress.set_learning_rate(gradients[0].learning_rate);
  int64_t records = 0;
  double loss = 0;
  for (const VersionRounds::Gradient& gradient : gradients) {
    const int64_t size = gradient.range.end() - gradient.range.begin();
    const auto ranges = tasks_.CommitNext(now, gradient.worker_id, size);
    if (!ranges.ok()) {
      return host_.Fail(now,
                        absl::StrCat("the ledger of version ", version,
                                     " is wrong: ", ranges.status().message()));
    }
    records += size;
    loss += gradient.loss * static_cast<double>(size);
    for (const CommittedRange& range : *ranges) {
      observer_.OnCommit(range, version, /*generation=*/0);
    }
  }
  host_.EndCommit(now, version, records);
  progress.set_loss(loss / static_cast<double>(records));
  TellStep(first, progress, records);
}

void ServerTraining::SendCommit(int server) {
  v1::MasterMessage message;
  *message.mutable_commit() = versions_.commit();
  port_.SendToServer(server, std::move(message));
}

void ServerTraining::SendPushResult(int64_t worker_id,
                                    const v1::LedgerRange& range,
                                    int64_t version) {
  if (!registry_.IsReachable(worker_id)) return;
  v1::MasterMessage message;
  *message.mutable_push_result()->mutable_range() = range;
  message.mutable_push_result()->set_version(version);
  port_.Send({registry_.ConnectionOf(worker_id)}, std::move(message));
}

void ServerTraining::OnCommitted(absl::Time now) {
  for (const VersionRounds::Gradient& gradient :
       std::exchange(in_open_version_, {})) {
    SendPushResult(gradient.worker_id, gradient.range, versions_.version());
    // The clocks of the others go on: one of them may hang.
    tasks_.RestartClock(now, gradient.worker_id);
  }
  SendStale();
}

// ---- servers come and go ----

bool ServerTraining::OnAttached(absl::Time now, int server, int64_t version) {
  there_.insert(server);
  if (away_.erase(server) > 0) tasks_.RestartClocks(now);
  if (!VersionFits(server, version)) {
    const bool ahead = version >= least_version_[server];
    host_.Fail(
        now,
        absl::StrCat(
            "parameter server ", server, " came back with version ", version,
            " of its part of the model instead of ",
            ahead ? versions_.version() : least_version_[server],
            ": its log, or the end of it, is lost. Start again from the newest "
            "checkpoint (--checkpoint_dir_for_init); --ps_log=DIR, on a "
            "--volume if on a cluster, keeps logs when pods are lost"));
    return false;
  }
  if (versions_.open() && server < moves_.map().servers()) SendCommit(server);
  if (moves_.open() && server < moves_.participants()) SendStep(server);
  return moves_.moving();
}

bool ServerTraining::VersionFits(int server, int64_t version) const {
  // One that holds no bucket yet cannot have lost any.
  if (!host_.HasTrained() || !moves_.Holds(server)) return true;
  if (!options_.use_async && version > versions_.version()) return false;
  const auto least = least_version_.find(server);
  return least == least_version_.end() || version >= least->second;
}

void ServerTraining::OnDetached(int server) {
  there_.erase(server);
  least_version_[server] = 0;
  if (!moves_.Holds(server)) return;
  away_.insert(server);
  // Whatever is committed by now, it had acknowledged before. Of a version that
  // is open it may have the gradients only.
  least_version_[server] =
      options_.use_async ? tasks_.step()
                         : versions_.version() - (versions_.open() ? 1 : 0);
}

bool ServerTraining::OnMessage(absl::Time now, int server,
                               const v1::WorkerMessage& message) {
  if (message.has_server_moved()) {
    return OnMoved(now, server, message.server_moved());
  }
  if (!message.has_server_committed()) return false;
  const v1::ServerCommitted& committed = message.server_committed();
  // Said again to a server that came back or took over: all have it by now.
  const bool stale =
      !versions_.open() || committed.version() != versions_.version();
  if (!committed.error().empty() && !stale) {
    host_.Fail(
        now, absl::StrCat("parameter server ", server, " cannot apply version ",
                          committed.version(), ": ", committed.error()));
    return false;
  }
  if (!versions_.Applied(server, committed.version())) return false;
  OnCommitted(now);
  return true;
}

void ServerTraining::RecordPart(const v1::PsPartRecord& record) {
  parts_[record.part()] = record;
  v1::JournalRecord journal;
  *journal.mutable_part() = record;
  host_.Record(journal);
}

std::optional<int> ServerTraining::Missing() const {
  if (away_.empty()) return std::nullopt;
  return *away_.begin();
}

// ---- workers come, wait and go ----

void ServerTraining::Welcome(int64_t worker_id, v1::Welcome& welcome) {
  *welcome.mutable_servers() = addresses_;
  *welcome.mutable_servers()->mutable_map() = moves_.MapProto();
  // When something is committed, the servers have a model.
  if (options_.restore_from.empty() || host_.HasTrained()) return;
  if (restorer_ >= 0 && registry_.IsReachable(restorer_)) {
    welcome.set_await_model(true);
    return;
  }
  restorer_ = worker_id;
  restorer_overdue_ = 0;
  welcome.set_restore_from(options_.restore_from);
}

void ServerTraining::OnLost(absl::Time now, int64_t worker_id) {
  versions_.Drop(worker_id);
  // Whoever is paused has reported all that it has pushed.
  if (!options_.use_async || saves_.IsPaused(worker_id)) return;
  // Pushes that it had not reported yet are on all servers; the last one may be
  // on some of them only.
  for (const v1::LedgerRange& range : tasks_.Uncommitted(worker_id)) {
    saves_.AddSuspect(range);
    CancelSave(now);
  }
}

bool ServerTraining::StandsStill() const {
  // Not while workers are asked to pause: one that hangs would hold up the job
  // for ever.
  return saves_.state() == ServerCheckpoints::State::kSaving ||
         versions_.open() || moves_.open() || !away_.empty() || !stuck_.empty();
}

absl::Time ServerTraining::NextTimer() const {
  absl::Time next = read_deadline_;
  for (const auto& [server, told] : told_) {
    if (stuck_.count(server) == 0) next = std::min(next, told + kStuck);
  }
  return next;
}

void ServerTraining::OnTelemetry(absl::Time now, int server) {
  const auto [told, first] = told_.try_emplace(server, now);
  const absl::Duration silence = now - std::exchange(told->second, now);
  if (stuck_.erase(server) == 0) return;
  observer_.OnMessage(absl::StrCat(
      "parameter server ", server, " goes on after ",
      absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1)))));
  // Workers have waited for it.
  tasks_.RestartClocks(now);
}

void ServerTraining::OnStreamClosed(absl::Time now, int server) {
  told_.erase(server);
  if (stuck_.erase(server) > 0) tasks_.RestartClocks(now);
}

void ServerTraining::NoteStuck(absl::Time now) {
  for (const auto& [server, told] : told_) {
    if (told + kStuck > now || !stuck_.insert(server).second) continue;
    observer_.OnMessage(absl::StrCat(
        "parameter server ", server, " answers, but has done nothing for ",
        absl::FormatDuration(kStuck),
        ": is the disk of its log (--ps_log) slow or gone? Workers wait for "
        "it"));
  }
}

bool ServerTraining::IsRestoring() const {
  return !options_.restore_from.empty() && !host_.HasTrained() &&
         restorer_ >= 0 && registry_.IsReachable(restorer_);
}

bool ServerTraining::IsExcused(int64_t worker_id) {
  // A large model takes longer than a task. Nothing is heard of it meanwhile.
  constexpr int kMostOverdue = 12;
  if (IsRestoring()) {
    return worker_id != restorer_ || ++restorer_overdue_ <= kMostOverdue;
  }
  return versions_.Waits(worker_id) ||
         (saves_.holds_training() && saves_.IsPaused(worker_id));
}

// Training that was stopped early leaves workers with tasks: they may be in the
// middle of a minibatch.
bool ServerTraining::AtRest() const {
  if (versions_.open() || moves_.open()) return false;
  const auto& workers = registry_.workers();
  return std::all_of(workers.begin(), workers.end(), [this](const auto& entry) {
    return !entry.second.ready || entry.second.idle ||
           tasks_.NumHeld(entry.second.id, v1::TRAINING) == 0;
  });
}

void ServerTraining::SendTrainingDone() {
  for (auto& [connection, worker] : registry_.workers()) {
    if (!worker.ready || std::exchange(worker.training_done_sent, true)) {
      continue;
    }
    v1::MasterMessage message;
    message.mutable_training_done();
    port_.Send({connection}, std::move(message));
  }
}

// ---- restart of the master ----

void ServerTraining::SaveState(v1::JournalRecord::State& state) const {
  if (versions_.open()) {
    *state.mutable_version() = versions_.commit();
  } else {
    state.mutable_version()->set_version(versions_.version());
  }
  *state.mutable_buckets() = moves_.State();
  for (const auto& [part, record] : parts_) *state.add_parts() = record;
}

void ServerTraining::LoadState(const v1::JournalRecord::State& state) {
  if (state.has_version()) versions_.Resume(state.version());
  if (state.has_buckets()) {
    moves_.Resume(state.buckets());
    versions_.SetServers(moves_.map().servers());
  }
  for (const auto& record : state.parts()) parts_[record.part()] = record;
}

void ServerTraining::Replay(const v1::JournalRecord& record) {
  if (record.has_version()) {
    versions_.Resume(record.version());
  } else if (record.has_part()) {
    parts_[record.part().part()] = record.part();
  } else if (record.has_buckets()) {
    moves_.Resume(record.buckets());
    versions_.SetServers(moves_.map().servers());
    // A step only begins when every server has the last version.
    if (!record.buckets().open()) return;
    v1::PsCommit closed;
    closed.set_version(versions_.version());
    versions_.Resume(closed);
  }
}

void ServerTraining::Resume(absl::Time now) {
  for (int server = 0; server < moves_.servers(); ++server) {
    OnDetached(server);
  }
  if (options_.use_async) {
    // The journal does not tell who pushed what it had not reported.
    const v1::Ledger ledger = tasks_.Snapshot();
    for (const v1::LedgerRange& range : ledger.outstanding()) {
      saves_.AddSuspect(range);
    }
    return;
  }
  if (!versions_.open()) return;
  // The master before may have recorded the version and not all its commits.
  const int64_t version = versions_.version();
  host_.BeginCommit(version);
  for (const v1::PsRanges& push : versions_.commit().pushes()) {
    v1::LedgerRange range;
    range.set_shard(push.shard());
    range.set_epoch(push.epoch());
    range.set_begin(push.bounds(0));
    range.set_end(push.bounds(1));
    const auto committed = tasks_.CommitRange(now, range);
    if (committed.ok() && committed->has_value()) {
      observer_.OnCommit(**committed, version, /*generation=*/0);
    }
  }
  const absl::Status status = tasks_.SetStep(version);
  if (!status.ok()) LogWarning(status.message());
}

}  // namespace elasticdl::master
