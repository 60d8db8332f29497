// The controller's part in moving buckets between parameter servers: when a
// step of a move may begin, who is told, and what waits meanwhile.
//
//   while a step is open    why
//   ----------------------  -------------------------------------------------
//   no version is made      servers drop gradients that were staged for the
//                           map before; those are computed again
//   no checkpoint begins    the buckets that move are on no server
//   tasks have no deadline  workers wait for their servers
//
// The other way round, no step begins while a version is open or a checkpoint
// is read.
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/text.h"
#include "job_controller.h"

namespace elasticdl::master {

void JobController::ScaleServers(absl::Time now, int servers) {
  if (!HasServers() || servers == moves_.target()) return;
  moves_.SetTarget(servers);
  RecordMoves();
  Advance(now);
}

void JobController::RecordMoves() {
  v1::JournalRecord record;
  *record.mutable_buckets() = moves_.State();
  Record(record);
}

void JobController::ReplayMoves(const v1::BucketState& state) {
  moves_.Resume(state);
  versions_.SetServers(moves_.map().servers());
  // A step only begins when every server has the last version.
  if (!state.open()) return;
  v1::PsCommit closed;
  closed.set_version(versions_.version());
  versions_.Resume(closed);
}

void JobController::AdvanceMoves(absl::Time now) {
  next_move_ = absl::InfiniteFuture();
  // Before the first commit, some server may have no values yet.
  const bool trains = tasks_.step() > first_ledger_.step() &&
                      !tasks_.TrainingDone() && !stopping_.has_value();
  if (!trains || saves_.holds_training() || versions_.open()) return;
  // Gradients that wait would be computed again; there is a version between two
  // steps, so that training gets on.
  if (versions_.has_waiting() && versions_.version() == moved_at_version_) {
    return;
  }
  KeepServersIfNeeded();
  const auto is_there = [this](int server) {
    return servers_there_.count(server) != 0;
  };
  if (!moves_.CanBegin(now, is_there)) {
    if (moves_.next() > now) next_move_ = moves_.next();
    return;
  }
  if (!moves_.under_way()) {
    observer_.OnMessage(absl::StrCat(
        "buckets move to ", Count(moves_.target(), "parameter server")));
  }
  moves_.Begin(now);
  moved_at_version_ = versions_.version();
  RecordMoves();
  versions_.SetServers(moves_.map().servers());
  for (VersionRounds::Gradient& gradient : versions_.TakeWaiting()) {
    stale_.push_back(std::move(gradient));
  }
  for (int server = 0; server < moves_.participants(); ++server) {
    SendStep(server);
  }
}

// The model may have grown since fewer servers were asked for. Between two
// steps it is complete, and buckets can go back to where they were.
void JobController::KeepServersIfNeeded() {
  const int servers = moves_.map().servers();
  if (options_.server_memory == nullptr || moves_.open() ||
      moves_.target() >= servers) {
    return;
  }
  const auto why = options_.server_memory->WhyNot(moves_.target(), 1.0);
  if (!why.has_value()) return;
  observer_.OnMessage(absl::StrCat(
      "the job stays on ", Count(servers, "parameter server"), ": ", *why));
  moves_.SetTarget(servers);
  RecordMoves();
  if (!moves_.moving()) observer_.OnServersScaled(servers);
}

void JobController::SendStep(int server) {
  v1::MasterMessage message;
  *message.mutable_move_buckets() = moves_.step();
  port_.SendToServer(server, std::move(message));
}

void JobController::OnServerMoved(absl::Time now, int server,
                                  const v1::ServerMoved& moved) {
  if (!moved.error().empty()) {
    return Fail(now, absl::StrCat("parameter server ", server,
                                  " cannot take its buckets: ", moved.error()));
  }
  if (!moves_.Done(now, server, moved)) return;
  tasks_.RestartClocks(now);
  SendStale();
  // A new master must know that the buckets are there: whoever holds them takes
  // pushes now and must not come back without them. And who is beyond the last
  // map may go: it must not be waited for.
  RecordMoves();
  if (!moves_.moving()) {
    for (auto it = servers_away_.begin(); it != servers_away_.end();) {
      it = *it < moves_.servers() ? std::next(it) : servers_away_.erase(it);
    }
    observer_.OnServersScaled(moves_.map().servers());
  }
  Advance(now);
}

}  // namespace elasticdl::master
