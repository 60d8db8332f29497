// A worker's side of the world protocol: which world it is in, which one is
// being prepared, and when to switch (docs/design/0003-elastic-allreduce.md).
//
//            Prepare                 Connected
//   (none) ──────────► preparing ──────────────► connected
//                                                    │ urgent: at once; else
//                                                    │ Switch and agreement
//                                                    ▼
//   failed, dissolved, or left behind ◄──────── in the world
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// One world, as one member sees it.
struct World {
  int64_t generation = 0;
  int rank = 0;
  std::vector<int64_t> members;  // By rank.
  bool urgent = false;
  bool cold = false;
  std::string restore_from;
  int64_t cold_step = 0;
  // Where rank 0 of a cold world finds the state; empty = `restore_from`.
  std::string kept;
  std::vector<int64_t> unsettled;
  int64_t saved_step = -1;
  bool last = false;
  bool evaluating = false;

  int size() const { return static_cast<int>(members.size()); }
};

// Thread-compatible. A pure state machine.
class ElasticLoop {
 public:
  explicit ElasticLoop(int64_t worker_id) : worker_id_(worker_id) {}

  // ---- events ----
  // A newer world is being prepared; if it is urgent, the current one is
  // broken. Old worlds and those without this worker are ignored. One that
  // shrinks the last one need not be connected.
  void Prepare(const v1::Prepare& prepare);
  // The communicator of that world is ready here.
  void Connected(int64_t generation);
  // All members of that world are connected: switch to it.
  void Switch(int64_t generation);
  void Dissolve(int64_t generation);
  // The current world failed here. True if the master should be told, because
  // it has not announced an urgent one.
  bool Failed(int64_t generation);
  // A round of the current world is complete; `switch_seen` of its members have
  // seen the switch. If all have, this round was its last.
  void RoundDone(int switch_seen);
  // False: this worker, and at this step every member, does no rounds (it waits
  // for an evaluation, for data, for the end). Then a switch needs no
  // agreement. Stepping again after such a switch does not revive the current
  // world: other members may already have switched.
  void SetStepping(bool stepping);

  // ---- state ----
  // The world to switch to now, if any. Then call Enter.
  const World* ToEnter() const;
  void Enter();
  // The current world; null = none.
  const World* world() const { return world_.has_value() ? &*world_ : nullptr; }
  // The current world has had its last round.
  bool last_round_done() const { return agreed_; }
  // For the control word.
  bool switch_seen() const { return switch_to_ > 0; }
  // The world continues without this worker, which had asked to leave.
  bool left() const { return left_; }

 private:
  bool MayGo() const;
  void MaybeAgree();
  void MaybeLeave();
  void DropWorld();

  const int64_t worker_id_;
  std::optional<World> world_;
  std::optional<World> next_;
  bool next_connected_ = false;
  // Set by Switch until the current world ends.
  int64_t switch_to_ = 0;
  bool agreed_ = false;
  bool stepping_ = false;
  bool left_ = false;
  int64_t newest_ = 0;
};

}  // namespace elasticdl::rendezvous
