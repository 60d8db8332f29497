#include "elasticdl/rendezvous/elastic_loop.h"

#include <algorithm>
#include <utility>

namespace elasticdl::rendezvous {
namespace {

World ToWorld(const v1::Prepare& prepare) {
  World world;
  world.generation = prepare.generation();
  for (const v1::Member& member : prepare.members()) {
    world.members.push_back(member.worker_id());
  }
  world.urgent = prepare.urgent();
  world.cold = prepare.cold();
  world.restore_from = prepare.restore_from();
  world.cold_step = prepare.cold_step();
  world.kept = prepare.kept();
  world.unsettled.assign(prepare.unsettled().begin(),
                         prepare.unsettled().end());
  world.saved_step = prepare.saved_step();
  world.last = prepare.last();
  world.evaluating = prepare.evaluating();
  return world;
}

}  // namespace

void ElasticLoop::Prepare(const v1::Prepare& prepare) {
  if (prepare.generation() <= newest_) return;
  World world = ToWorld(prepare);
  const auto me =
      std::find(world.members.begin(), world.members.end(), worker_id_);
  if (me == world.members.end()) return;
  world.rank = static_cast<int>(me - world.members.begin());
  newest_ = world.generation;
  next_ = std::move(world);
  next_connected_ = prepare.shrinks() != 0;
  if (next_->urgent) DropWorld();
}

void ElasticLoop::Connected(int64_t generation) {
  if (next_.has_value() && next_->generation == generation) {
    next_connected_ = true;
  }
}

void ElasticLoop::Switch(int64_t generation) {
  if (world_.has_value() ? generation <= world_->generation
                         : !next_.has_value()) {
    return;
  }
  switch_to_ = generation;
  MaybeAgree();
  MaybeLeave();
}

void ElasticLoop::SetStepping(bool stepping) {
  stepping_ = stepping;
  MaybeAgree();
}

void ElasticLoop::MaybeAgree() {
  if (world_.has_value() && switch_to_ > 0 && !stepping_) agreed_ = true;
}

void ElasticLoop::Dissolve(int64_t generation) {
  if (world_.has_value() && world_->generation <= generation) DropWorld();
  if (next_.has_value() && next_->generation <= generation) next_.reset();
}

bool ElasticLoop::Failed(int64_t generation) {
  if (!world_.has_value() || world_->generation != generation) return false;
  DropWorld();
  if (next_.has_value() && next_->urgent) return false;
  // A broken world cannot switch, so the world that was being prepared is given
  // up; the master tells its other members the same.
  next_.reset();
  return true;
}

void ElasticLoop::RoundDone(int switch_seen) {
  if (!world_.has_value()) return;
  if (switch_to_ > 0 && switch_seen == world_->size()) agreed_ = true;
  MaybeLeave();
}

bool ElasticLoop::MayGo() const { return !world_.has_value() || agreed_; }

const World* ElasticLoop::ToEnter() const {
  if (!next_.has_value() || !next_connected_) return nullptr;
  if (next_->urgent) return &*next_;
  return switch_to_ == next_->generation && MayGo() ? &*next_ : nullptr;
}

void ElasticLoop::MaybeLeave() {
  if (!world_.has_value() || switch_to_ <= world_->generation || !MayGo()) {
    return;
  }
  if (next_.has_value() && next_->generation == switch_to_) return;
  DropWorld();
  left_ = true;
}

void ElasticLoop::DropWorld() {
  world_.reset();
  switch_to_ = 0;
  agreed_ = false;
}

void ElasticLoop::Enter() {
  DropWorld();
  world_ = std::move(next_);
  next_.reset();
  next_connected_ = false;
}

}  // namespace elasticdl::rendezvous
