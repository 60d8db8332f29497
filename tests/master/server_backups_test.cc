// Who becomes the primary of a part of the model, and when nobody may.
#include "server_backups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ServerBackupsTest : public testing::Test {
 protected:
  ServerBackupsTest() { Make(); }

  void Make() {
    ServerBackups::Options options;
    options.servers = 2;
    options.fits = [this](int, int64_t version) { return version >= least_; };
    options.resume_grace = absl::Seconds(30);
    backups_ = std::make_unique<ServerBackups>(options);
  }
  // A new process.
  ServerBackups::Decisions Start(int server, int64_t version = 0,
                                 int64_t version_of_other = 5) {
    v1::ServerHello hello;
    hello.set_server(server);
    ++starts_[server];
    for (const int part : {server, 1 - server}) {
      v1::PsCopy& copy = *hello.add_copies();
      copy.set_part(part);
      copy.set_incarnation(static_cast<uint64_t>(starts_[server]));
      copy.set_address("h" + std::to_string(server) + std::to_string(part));
      copy.set_version(part == 0 ? version : version_of_other);
    }
    return backups_->OnHello(now_, hello);
  }
  // Of a job that has three servers by now.
  ServerBackups::Decisions StartThird() {
    v1::ServerHello hello;
    hello.set_server(2);
    v1::PsCopy& copy = *hello.add_copies();
    copy.set_part(2);
    copy.set_incarnation(1);
    copy.set_address("h22");
    return backups_->OnHello(now_, hello);
  }
  ServerBackups::Decisions Say(int server, int part, int64_t term,
                               const std::string& what, int64_t number = 0,
                               int64_t questions = 0) {
    v1::PsPartState state;
    state.set_part(part);
    state.set_term(term);
    if (what == "serving") state.set_serving(number);
    if (what == "current") {
      state.set_current(static_cast<uint64_t>(starts_[1 - server]));
      state.set_number(questions);
    }
    if (what == "lost") state.mutable_lost()->set_number(number);
    return backups_->OnState(now_, server, state);
  }
  // Both servers are there and all backups are current.
  void StartAll() {
    Start(0);
    Start(1);
    for (const int part : {0, 1}) Say(part, part, 1, "current");
  }
  static const v1::PsAssignment* Find(const ServerBackups::Decisions& decisions,
                                      int server, int part) {
    const v1::PsAssignment* found = nullptr;
    for (const auto& send : decisions.sends) {
      if (send.server == server && send.assignment.part() == part) {
        found = &send.assignment;
      }
    }
    return found;
  }

  int64_t least_ = 0;
  int starts_[2] = {0, 0};
  const absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<ServerBackups> backups_;
};

TEST_F(ServerBackupsTest, APrimaryBeginsAloneAndHearsOfItsBackup) {
  auto decisions = Start(0);
  const v1::PsAssignment* own = Find(decisions, 0, 0);
  ASSERT_NE(own, nullptr);
  EXPECT_TRUE(own->primary());
  EXPECT_EQ(own->term(), 1);
  EXPECT_EQ(own->backup_address(), "");
  // Part 1's own server is not there.
  EXPECT_EQ(Find(decisions, 0, 1), nullptr);
  decisions = Say(0, 0, 1, "serving", 7);
  ASSERT_THAT(decisions.serving, SizeIs(1));
  EXPECT_EQ(decisions.serving[0].address, "h00");
  EXPECT_EQ(decisions.serving[0].version, 7);
  decisions = Start(1);
  own = Find(decisions, 0, 0);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->backup_address(), "h10");
  EXPECT_FALSE(Find(decisions, 1, 0)->primary());
  EXPECT_TRUE(Find(decisions, 1, 1)->primary());
  EXPECT_EQ(Find(decisions, 1, 1)->backup_address(), "h01");
}

// Two threads of the primary say that the backup has everything, and that it is
// lost.
TEST_F(ServerBackupsTest, ALostBackupIsNotCurrentAgainBecauseOfAnOldMessage) {
  Start(0);
  Start(1);
  Say(0, 0, 1, "serving", 5);
  auto decisions = Say(0, 0, 1, "lost", 1);
  EXPECT_EQ(Find(decisions, 0, 0)->alone(), 1);
  decisions = Say(0, 0, 1, "current");
  EXPECT_THAT(decisions.records, IsEmpty());
  EXPECT_FALSE(backups_->HasBackup(0));
  // The primary has acknowledged more since: the other copy must not take over.
  least_ = 7;
  backups_->OnLost(now_, 0);
  EXPECT_EQ(backups_->PrimaryOf(0), 0);
  // When it has been synchronized again, it may.
  Start(0, 7);
  Say(0, 0, 2, "serving", 7);
  Say(0, 0, 2, "lost", 1);
  decisions = Say(0, 0, 2, "current", 0, /*questions=*/1);
  ASSERT_THAT(decisions.records, SizeIs(1));
  EXPECT_TRUE(backups_->HasBackup(0));
}

TEST_F(ServerBackupsTest, ABackupGoesToANewServer) {
  StartAll();
  Say(1, 1, 1, "serving", 5);
  EXPECT_THAT(backups_->SetServers(3).hosting, ElementsAre(0, 2));
  EXPECT_THAT(backups_->PartsOn(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(backups_->PartsOn(2), ElementsAre(2));
  // The primary proves that it is alive before its backup is given up.
  auto decisions = StartThird();
  const v1::PsAssignment* primary = Find(decisions, 1, 1);
  ASSERT_NE(primary, nullptr);
  EXPECT_EQ(primary->backup_address(), "");
  EXPECT_EQ(primary->alone(), 0);
  EXPECT_TRUE(backups_->HasBackup(1));
  EXPECT_THAT(decisions.hosting, IsEmpty());
  decisions = Say(1, 1, 1, "lost", 1);
  EXPECT_THAT(decisions.hosting, ElementsAre(0, 2));
  EXPECT_EQ(decisions.records.back().host(), 2);
  EXPECT_FALSE(decisions.records.back().current());
  EXPECT_THAT(backups_->PartsOn(0), ElementsAre(0, 2));
  EXPECT_THAT(backups_->PartsOn(2), ElementsAre(1, 2));
  EXPECT_EQ(backups_->needed(), 3);
}

TEST_F(ServerBackupsTest, APrimaryThatIsLostKeepsItsOldBackup) {
  StartAll();
  Say(1, 1, 1, "serving", 5);
  backups_->SetServers(3);
  StartThird();
  backups_->OnLost(now_, 1);
  EXPECT_EQ(backups_->PrimaryOf(1), 0);
}

TEST_F(ServerBackupsTest, APartIsHandedOver) {
  StartAll();
  backups_->OnLost(now_, 1);
  Start(1);
  Say(0, 1, 2, "serving", 5);
  Say(0, 1, 2, "current");
  backups_->SetServers(3);
  auto decisions = StartThird();
  EXPECT_THAT(decisions.away, ElementsAre(1));
  EXPECT_EQ(backups_->PrimaryOf(1), 1);
  ASSERT_NE(Find(decisions, 1, 1), nullptr);
  EXPECT_EQ(Find(decisions, 1, 1)->term(), 3);
  EXPECT_EQ(Find(decisions, 1, 1)->alone(), -1);
  EXPECT_FALSE(Find(decisions, 0, 1)->primary());
  // It is lost before it has asked: nothing is acknowledged by it.
  backups_->OnLost(now_, 1);
  EXPECT_EQ(backups_->PrimaryOf(1), 0);
}

TEST_F(ServerBackupsTest, ACurrentBackupTakesOver) {
  StartAll();
  EXPECT_TRUE(backups_->HasBackup(0));
  auto decisions = backups_->OnLost(now_, 0);
  EXPECT_THAT(decisions.away, ElementsAre(0));
  const v1::PsAssignment* other = Find(decisions, 1, 0);
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(other->primary());
  EXPECT_EQ(other->term(), 2);
  EXPECT_EQ(backups_->PrimaryOf(0), 1);
  ASSERT_THAT(decisions.records, SizeIs(1));
  EXPECT_EQ(decisions.records[0].term(), 2);
  EXPECT_EQ(decisions.records[0].primary(), 1);
  EXPECT_FALSE(decisions.records[0].current());
  // Part 1 hears that its backup is gone, and asks.
  EXPECT_EQ(Find(decisions, 1, 1)->backup_address(), "");
  EXPECT_EQ(Find(decisions, 1, 1)->alone(), 0);
  decisions = Say(1, 1, 1, "lost", 1);
  EXPECT_EQ(Find(decisions, 1, 1)->alone(), 1);
  ASSERT_THAT(decisions.records, SizeIs(1));
  EXPECT_FALSE(decisions.records[0].current());
  // Who comes back is the backup of both, whatever it has.
  least_ = 100;
  decisions = Start(0);
  EXPECT_FALSE(decisions.failure.has_value());
  EXPECT_FALSE(Find(decisions, 0, 0)->primary());
  EXPECT_EQ(Find(decisions, 0, 0)->term(), 2);
  EXPECT_FALSE(Find(decisions, 0, 1)->primary());
  EXPECT_EQ(Find(decisions, 1, 0)->backup_address(), "h00");
  EXPECT_EQ(Find(decisions, 1, 1)->backup_address(), "h01");
}

TEST_F(ServerBackupsTest, SaysWhenAllPartsHaveABackupAgain) {
  StartAll();
  auto decisions = backups_->OnLost(now_, 0);
  ASSERT_THAT(decisions.changes, SizeIs(1));
  EXPECT_EQ(decisions.changes[0].text,
            "server 1 takes part 0 of the model over from server 0; the part "
            "has no backup for now");
  Say(1, 1, 1, "lost", 1);
  Start(0);
  decisions = Say(1, 1, 1, "current", 0, /*questions=*/1);
  ASSERT_THAT(decisions.changes, SizeIs(1));
  EXPECT_FALSE(decisions.changes[0].all_current);
  decisions = Say(1, 0, 2, "current");
  ASSERT_THAT(decisions.changes, SizeIs(1));
  EXPECT_TRUE(decisions.changes[0].all_current);
}

TEST_F(ServerBackupsTest, OneThatIsNotCurrentNeverTakesOver) {
  StartAll();
  Say(0, 0, 1, "lost", 1);
  auto decisions = backups_->OnLost(now_, 0);
  EXPECT_EQ(Find(decisions, 1, 0), nullptr);
  EXPECT_EQ(backups_->PrimaryOf(0), 0);
  least_ = 5;
  // It comes back with what it acknowledged.
  decisions = Start(0, 5);
  ASSERT_NE(Find(decisions, 0, 0), nullptr);
  EXPECT_TRUE(Find(decisions, 0, 0)->primary());
  EXPECT_EQ(Find(decisions, 0, 0)->term(), 2);
  // Or without.
  Say(0, 0, 2, "current");
  Say(0, 0, 2, "lost", 1);
  backups_->OnLost(now_, 0);
  decisions = Start(0, 4);
  EXPECT_TRUE(decisions.failure.has_value());
}

// A backup that was started again is no longer what the primary has said.
TEST_F(ServerBackupsTest, ARestartedBackupMustHaveItsLog) {
  StartAll();
  backups_->OnLost(now_, 1);
  least_ = 5;
  Start(1, 0);
  // The primary has not asked yet; it is lost, too.
  auto decisions = backups_->OnLost(now_, 0);
  EXPECT_EQ(Find(decisions, 1, 0), nullptr);
  decisions = Start(0, 5);
  EXPECT_TRUE(Find(decisions, 0, 0)->primary());
  EXPECT_FALSE(decisions.failure.has_value());
}

TEST_F(ServerBackupsTest, BothAreLost) {
  StartAll();
  backups_->OnLost(now_, 1);
  backups_->OnLost(now_, 0);
  least_ = 5;
  // The primary has lost its log, the backup has not.
  auto decisions = Start(0, 0);
  EXPECT_FALSE(decisions.failure.has_value());
  EXPECT_EQ(Find(decisions, 0, 0), nullptr);
  decisions = Start(1, 5);
  ASSERT_NE(Find(decisions, 1, 0), nullptr);
  EXPECT_TRUE(Find(decisions, 1, 0)->primary());
  EXPECT_FALSE(Find(decisions, 0, 0)->primary());
}

TEST_F(ServerBackupsTest, BothHaveLostTheirLogs) {
  StartAll();
  backups_->OnLost(now_, 1);
  backups_->OnLost(now_, 0);
  least_ = 5;
  Start(0, 0);
  EXPECT_TRUE(Start(1, 0).failure.has_value());
}

TEST_F(ServerBackupsTest, WhatAnOldPrimarySaysIsVoid) {
  StartAll();
  backups_->OnLost(now_, 0);
  EXPECT_THAT(Say(0, 0, 1, "current").records, IsEmpty());
  EXPECT_THAT(Say(0, 0, 1, "lost", 3).sends, IsEmpty());
  // It was only stopped, and attaches again as what it was.
  v1::ServerHello hello;
  hello.set_server(0);
  v1::PsCopy& copy = *hello.add_copies();
  copy.set_part(0);
  copy.set_address("h00");
  copy.set_term(1);
  copy.set_primary(true);
  copy.set_current(1);
  const auto decisions = backups_->OnHello(now_, hello);
  EXPECT_THAT(decisions.serving, IsEmpty());
  EXPECT_FALSE(Find(decisions, 0, 0)->primary());
  EXPECT_EQ(Find(decisions, 0, 0)->term(), 2);
  EXPECT_EQ(Find(decisions, 1, 0)->backup_address(), "h00");
}

class ResumedTest : public ServerBackupsTest {
 protected:
  // Another master goes on with what was recorded.
  void Restart() {
    const std::vector<v1::PsPartRecord> records = backups_->Records();
    Make();
    for (const auto& record : records) backups_->Replay(record);
    backups_->Resume(now_);
  }
  ServerBackups::Decisions Return(int server, bool asks = false) {
    v1::ServerHello hello;
    hello.set_server(server);
    for (const int part : {server, 1 - server}) {
      v1::PsCopy& copy = *hello.add_copies();
      copy.set_part(part);
      copy.set_address("h" + std::to_string(server) + std::to_string(part));
      copy.set_term(1);
      copy.set_primary(part == server);
      copy.set_incarnation(1);
      copy.set_current(part != server || !asks ? 1 : 0);
      if (part == server && asks) copy.mutable_lost()->set_number(4);
    }
    return backups_->OnHello(now_, hello);
  }
};

TEST_F(ResumedTest, NothingChangesWhenAllComeBack) {
  StartAll();
  Restart();
  auto decisions = Return(0);
  ASSERT_THAT(decisions.serving, SizeIs(1));
  EXPECT_THAT(decisions.sends, IsEmpty());
  decisions = Return(1);
  EXPECT_EQ(Find(decisions, 0, 0)->backup_address(), "h10");
  EXPECT_EQ(Find(decisions, 1, 1)->backup_address(), "h01");
  EXPECT_THAT(decisions.records, IsEmpty());
  EXPECT_TRUE(backups_->HasBackup(0));
  EXPECT_THAT(backups_->OnTimer(now_ + absl::Minutes(1)).sends, IsEmpty());
}

TEST_F(ResumedTest, APrimaryThatStaysAwayIsReplacedInTime) {
  StartAll();
  Restart();
  EXPECT_EQ(Find(Return(1), 1, 0), nullptr);
  EXPECT_THAT(backups_->OnTimer(now_ + absl::Seconds(29)).sends, IsEmpty());
  const auto decisions = backups_->OnTimer(backups_->next_timer());
  ASSERT_NE(Find(decisions, 1, 0), nullptr);
  EXPECT_TRUE(Find(decisions, 1, 0)->primary());
  EXPECT_EQ(backups_->next_timer(), absl::InfiniteFuture());
}

TEST_F(ResumedTest, AQuestionIsAnsweredByTheNextMaster) {
  StartAll();
  Restart();
  const auto decisions = Return(0, /*asks=*/true);
  EXPECT_EQ(Find(decisions, 0, 0)->alone(), 4);
  ASSERT_THAT(decisions.records, SizeIs(1));
  EXPECT_FALSE(decisions.records[0].current());
  EXPECT_FALSE(backups_->HasBackup(0));
}

}  // namespace
}  // namespace elasticdl::master
