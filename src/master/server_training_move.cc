// Buckets that move between parameter servers: when a step of a move may begin,
// and who is told.
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/text.h"
#include "server_training.h"

namespace elasticdl::master {
namespace {

// Servers tell once a second what they use.
constexpr absl::Duration kTelemetryPatience = absl::Seconds(1);

}  // namespace

bool ServerTraining::Scale(int servers) {
  if (servers == moves_.target()) return false;
  moves_.SetTarget(servers);
  RecordMoves();
  return true;
}

void ServerTraining::RecordMoves() {
  v1::JournalRecord record;
  *record.mutable_buckets() = moves_.State();
  host_.Record(record);
}

void ServerTraining::AdvanceMoves(absl::Time now) {
  next_move_ = absl::InfiniteFuture();
  // Before the first commit, some server may have no values yet.
  const bool trains =
      host_.HasTrained() && !tasks_.TrainingDone() && !host_.IsStopping();
  if (!trains || saves_.holds_training() || versions_.open()) return;
  // Gradients that wait would be computed again; there is a version between two
  // steps, so that training gets on.
  if (versions_.has_waiting() && versions_.version() == moved_at_version_) {
    return;
  }
  KeepServersIfNeeded();
  if (options_.memory != nullptr && !moves_.open() &&
      options_.memory->WhyUnknown(moves_.target()).has_value()) {
    next_move_ = now + kTelemetryPatience;
    return;
  }
  const auto is_there = [this](int server) {
    return there_.count(server) != 0;
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
void ServerTraining::KeepServersIfNeeded() {
  const int servers = moves_.map().servers();
  if (options_.memory == nullptr || moves_.open() ||
      moves_.target() >= servers) {
    return;
  }
  const auto why = options_.memory->WhyNot(moves_.target(), 1.0);
  if (!why.has_value()) return;
  observer_.OnMessage(absl::StrCat(
      "the job stays on ", Count(servers, "parameter server"), ": ", *why));
  moves_.SetTarget(servers);
  RecordMoves();
  if (!moves_.moving()) observer_.OnServersScaled(servers);
}

void ServerTraining::SendStep(int server) {
  v1::MasterMessage message;
  *message.mutable_move_buckets() = moves_.step();
  port_.SendToServer(server, std::move(message));
}

bool ServerTraining::OnMoved(absl::Time now, int server,
                             const v1::ServerMoved& moved) {
  if (!moved.error().empty()) {
    host_.Fail(now, absl::StrCat("parameter server ", server,
                                 " cannot take its buckets: ", moved.error()));
    return false;
  }
  if (!moves_.Done(now, server, moved)) return false;
  tasks_.RestartClocks(now);
  SendStale();
  // A new master must know that the buckets are there: whoever holds them takes
  // pushes now and must not come back without them. And who is beyond the last
  // map may go: it must not be waited for.
  RecordMoves();
  if (!moves_.moving()) {
    for (auto it = away_.begin(); it != away_.end();) {
      it = *it < moves_.servers() ? std::next(it) : away_.erase(it);
    }
    observer_.OnServersScaled(moves_.map().servers());
  }
  return true;
}

}  // namespace elasticdl::master
