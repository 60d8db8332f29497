#include "silence_watch.h"

#include <utility>

namespace elasticdl::master {

bool SilenceWatch::OnHeard(absl::Time now, ConnectionId connection) {
  Peer& peer = peers_[connection];
  peer.heard = now;
  peer.asked = absl::InfiniteFuture();
  return std::exchange(peer.silent, false);
}

SilenceWatch::Turn SilenceWatch::OnTimer(absl::Time now) {
  Turn turn;
  if (now < next_) return turn;
  // It was the master that did not listen (it was stopped, or its disk was
  // slow): what was said meanwhile may still be on its way to this thread.
  const bool late = next_ != absl::InfinitePast() && now > next_ + kPeriod;
  next_ = now + kPeriod;
  // After those who were asked last, so that everybody's turn comes.
  auto at = peers_.upper_bound(last_asked_);
  for (size_t i = 0; i < peers_.size(); ++i, ++at) {
    if (at == peers_.end()) at = peers_.begin();
    auto& [connection, peer] = *at;
    if (peer.silent || now - peer.heard < kQuiet) continue;
    if (late || peer.asked == absl::InfiniteFuture()) {
      if (turn.ask.size() >= kMostAsked) continue;
      peer.asked = now;
      turn.ask.push_back(connection);
    } else if (now - peer.asked >= kPatience) {
      peer.silent = true;
      turn.silent.push_back({connection, now - peer.heard});
    }
  }
  if (!turn.ask.empty()) last_asked_ = turn.ask.back();
  return turn;
}

}  // namespace elasticdl::master
