#include "bucket_moves.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace elasticdl::master {
namespace {

// Workers wait while a step is open. Shorter ones get more buckets, longer ones
// fewer.
constexpr absl::Duration kLongStep = absl::Milliseconds(20);
constexpr absl::Duration kShortStep = absl::Milliseconds(10);
constexpr int kMostBuckets = 64;
// Between two steps workers train for at least this time, or for as long as
// they were held up.
constexpr absl::Duration kRest = absl::Milliseconds(20);
constexpr absl::Duration kLongestRest = absl::Seconds(1);

}  // namespace

BucketMoves::BucketMoves(int servers)
    : map_(ps::BucketMap::Even(std::max(1, servers))),
      target_(map_.servers()),
      participants_(map_.servers()) {}

v1::PsMap BucketMoves::MapProto() const {
  v1::PsMap map;
  map.set_version(map_.version());
  map.set_servers(map_.servers());
  map.mutable_owners()->Add(map_.owners().begin(), map_.owners().end());
  map.set_moves(map_.version() != ps::kFirstMapVersion);
  return map;
}

int BucketMoves::servers() const {
  const int now = std::max(map_.servers(), target_);
  return open_ || keeps_ ? std::max(now, participants_) : now;
}

bool BucketMoves::Holds(int server) const {
  std::set<int> coming;
  if (open_) {
    for (const v1::BucketMove& move : step_.moves()) {
      if (move.from() == server) return true;
      // Once they are there, it takes pushes for them.
      if (done_.count(server) == 0) coming.insert(move.bucket());
    }
  }
  for (int bucket = 0; bucket < ps::kBuckets; ++bucket) {
    if (map_.owner(bucket) == server && coming.count(bucket) == 0) return true;
  }
  return false;
}

absl::Time BucketMoves::next() const {
  return moving() && !open_ ? rest_until_ : absl::InfiniteFuture();
}

bool BucketMoves::CanBegin(
    absl::Time now, const std::function<bool(int server)>& is_there) const {
  if (!moving() || open_ || now < rest_until_) return false;
  for (int server = 0; server < servers(); ++server) {
    if (!is_there(server)) return false;
  }
  return true;
}

ps::BucketMap BucketMoves::NextMap() const {
  const ps::BucketMap goal = map_.Rebalanced(target_);
  std::vector<int> owners = map_.owners();
  // By server. Each that is in a map holds a bucket: with the first that it
  // gets a server begins to count versions, with the last it stops.
  std::vector<int> held(static_cast<size_t>(std::max(map_.servers(), target_)));
  const auto count = [&](int server) -> int& {
    return held[static_cast<size_t>(server)];
  };
  for (const int owner : owners) ++count(owner);
  int moved = 0;
  const auto move = [&](size_t bucket) {
    --count(owners[bucket]);
    owners[bucket] = goal.owners()[bucket];
    ++count(owners[bucket]);
    ++moved;
  };
  for (size_t bucket = 0; bucket < owners.size(); ++bucket) {
    if (count(goal.owners()[bucket]) == 0) move(bucket);
  }
  std::vector<size_t> last;
  bool complete = true;
  for (size_t bucket = 0; bucket < owners.size(); ++bucket) {
    const int owner = owners[bucket];
    if (owner == goal.owners()[bucket]) continue;
    if (owner >= target_ && count(owner) == 1) {
      last.push_back(bucket);
    } else if (moved < batch_) {
      move(bucket);
    } else {
      complete = false;
    }
  }
  if (complete) {
    for (const size_t bucket : last) move(bucket);
  }
  const int servers = complete ? target_ : std::max(map_.servers(), target_);
  // Owners of a map and of its goal are servers of one of them.
  return *ps::BucketMap::Make(map_.version() + 1, servers, std::move(owners));
}

void BucketMoves::Begin(absl::Time now) {
  const ps::BucketMap next = NextMap();
  step_.Clear();
  for (int bucket = 0; bucket < ps::kBuckets; ++bucket) {
    if (next.owner(bucket) == map_.owner(bucket)) continue;
    v1::BucketMove& move = *step_.add_moves();
    move.set_bucket(bucket);
    move.set_from(map_.owner(bucket));
  }
  // Who was told of the last step still keeps buckets.
  participants_ =
      keeps_ ? std::max(participants_, map_.servers()) : map_.servers();
  participants_ = std::max(participants_, target_);
  const bool drops_only =
      step_.moves_size() == 0 && next.servers() == map_.servers();
  if (drops_only) {
    step_.set_forget_before(map_.version() + 1);
  } else {
    map_ = next;
    step_.set_forget_before(map_.version());
  }
  *step_.mutable_map() = MapProto();
  keeps_ = !drops_only;
  open_ = true;
  began_ = now;
  done_.clear();
}

bool BucketMoves::Done(absl::Time now, int server,
                       const v1::ServerMoved& moved) {
  if (!open_ || moved.map_version() != step_.map().version() ||
      moved.forget_before() != step_.forget_before() || server < 0 ||
      server >= participants_) {
    return false;
  }
  done_.insert(server);
  if (done_.size() < static_cast<size_t>(participants_)) return false;
  open_ = false;
  const absl::Duration took = now - began_;
  if (took < kShortStep) batch_ = std::min(kMostBuckets, batch_ * 2);
  if (took > kLongStep) batch_ = std::max(1, batch_ / 2);
  rest_until_ = now + std::clamp(took, kRest, kLongestRest);
  return true;
}

v1::BucketState BucketMoves::State() const {
  v1::BucketState state;
  *state.mutable_step() = step_;
  *state.mutable_step()->mutable_map() = MapProto();
  state.set_open(open_);
  state.set_keeps(keeps_);
  state.set_participants(participants_);
  state.set_target(target_);
  return state;
}

void BucketMoves::Resume(const v1::BucketState& state) {
  const v1::PsMap& map = state.step().map();
  auto made = ps::BucketMap::Make(map.version(), map.servers(),
                                  {map.owners().begin(), map.owners().end()});
  if (!made.ok()) return;
  map_ = *std::move(made);
  step_ = state.step();
  open_ = state.open();
  keeps_ = state.keeps();
  participants_ = state.participants();
  target_ = state.target();
  done_.clear();
  began_ = absl::InfinitePast();
}

}  // namespace elasticdl::master
