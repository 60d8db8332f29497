// Drives a Membership event by event.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/rendezvous/membership.h"

namespace elasticdl::rendezvous {

inline constexpr absl::Duration kTimeout = absl::Seconds(20);
inline constexpr absl::Duration kEnterTimeout = absl::Minutes(10);
inline constexpr absl::Duration kLoadTimeout = absl::Minutes(2);
inline constexpr absl::Duration kGrace = absl::Milliseconds(500);

inline std::vector<int64_t> Ids(const std::vector<WorldMember>& members) {
  std::vector<int64_t> ids;
  for (const WorldMember& member : members) ids.push_back(member.worker_id);
  return ids;
}

// Drives a Membership; `last_` has the decisions of the last event. Each
// decision must have a reason.
class MembershipTest : public ::testing::Test {
 protected:
  using Kind = MembershipDecision::Kind;

  void Make(int64_t min_workers = 1, int64_t max_workers = 0) {
    MembershipOptions options;
    options.min_workers = min_workers;
    options.max_workers = max_workers;
    options.save_last = save_last_;
    m_.emplace(options);
  }

  void Got(Membership::Decisions decisions) {
    last_ = std::move(decisions);
    for (const MembershipDecision& d : last_) EXPECT_FALSE(d.reason.empty());
  }
  void Ready(int64_t id) { Got(m_->Ready(now_, id, absl::StrCat("host", id))); }
  void Leave(int64_t id) { Got(m_->Leave(now_, id)); }
  void Saved(int64_t id, int64_t g) { Got(m_->Saved(now_, id, g)); }
  void Lost(int64_t id) { Got(m_->Lost(now_, id, "stream closed")); }
  void Offer(int64_t id, int64_t g) {
    Got(m_->Offered(now_, id, g, absl::StrCat("offer", id)));
  }
  void Connect(int64_t id, int64_t g) { Got(m_->Connected(now_, id, g)); }
  void Load(int64_t id, int64_t g, LoadStage stage = LoadStage::kLoading) {
    m_->Loading(now_, id, g, stage);
  }
  void Loaded(std::vector<int64_t> ids, int64_t g) {
    for (const int64_t id : ids) Load(id, g, LoadStage::kLoaded);
  }
  void Level(int64_t id, int64_t g, const std::vector<int64_t>& behind = {}) {
    Got(m_->Level(now_, id, g, behind, can_shrink_));
  }
  void CaughtUp(int64_t id, int64_t g) { Got(m_->CaughtUp(now_, id, g)); }
  void Broken(int64_t id, int64_t g, int64_t accused = -1) {
    Got(m_->Broken(now_, id, g, accused, "connection reset"));
  }
  void Offer(std::vector<int64_t> ids, int64_t g) {
    for (const int64_t id : ids) Offer(id, g);
  }
  void Connect(std::vector<int64_t> ids, int64_t g) {
    for (const int64_t id : ids) Connect(id, g);
  }
  void Advance(absl::Duration by) {
    now_ += by;
    Got(m_->OnTimer(now_));
  }
  // All members answer; for a background world up to the switch.
  void Answer(int64_t g, std::vector<int64_t> ids) {
    Offer(ids, g);
    Connect(ids, g);
  }
  // World 1 of workers 1..n trains.
  void StartWorld(int n, int64_t min_workers = 1, int64_t max_workers = 0) {
    Make(n, max_workers);
    std::vector<int64_t> ids;
    for (int64_t id = 1; id <= n; ++id) {
      Ready(id);
      ids.push_back(id);
    }
    Answer(1, ids);
    Level(1, 1);
    ASSERT_EQ(m_->active_generation(), 1);
    Got(m_->SetLimits(now_, min_workers, max_workers));
    ASSERT_TRUE(last_.empty());
    m_->Stepped(1);
  }

  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const MembershipDecision& d : last_) kinds.push_back(d.kind);
    return kinds;
  }
  // The only decision of that kind in the last event.
  MembershipDecision The(Kind kind) const {
    MembershipDecision found;
    found.generation = -1;
    int count = 0;
    for (const MembershipDecision& d : last_) {
      if (d.kind != kind) continue;
      found = d;
      ++count;
    }
    EXPECT_EQ(count, 1) << "kind " << static_cast<int>(kind);
    return found;
  }
  void ExpectPrepare(int64_t g, bool urgent, bool cold,
                     std::vector<int64_t> ids) {
    const MembershipDecision prepare = The(Kind::kPrepare);
    EXPECT_EQ(prepare.generation, g);
    EXPECT_EQ(prepare.urgent, urgent);
    EXPECT_EQ(prepare.cold, cold);
    EXPECT_EQ(Ids(prepare.members), ids);
    EXPECT_EQ(prepare.to, ids);
  }

  bool save_last_ = false;
  // Of the worlds that become level.
  bool can_shrink_ = false;
  std::optional<Membership> m_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Membership::Decisions last_;
};

}  // namespace elasticdl::rendezvous
