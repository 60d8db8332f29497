// Random schedules of the machines behind --ps_backup, without sockets: the
// master's (ServerBackups), the copies' (PartRole), with logs that are lists of
// pushes. Processes are killed, stopped and woken, logs are lost, the master is
// restarted, servers come and go, messages come late or never. Clients push to
// any copy, the wrong ones included. No push that was acknowledged may be lost
// or be there twice, as long as no log is lost while it is the only one with
// everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "part_role.h"
#include "server_backups.h"

namespace elasticdl::ps {
namespace {

using master::ServerBackups;

// One copy of a part.
struct Copy {
  int part = 0;
  int incarnation = 0;
  // A part that is no more may be made again. Bucket maps keep what was cut for
  // the old one from the new one.
  int generation = 0;
  // Survives the process, unless it is lost.
  std::vector<int> log;
  // Of the process.
  PartRole role;
  struct Waiting {
    int push = 0;
    int64_t term = 0;
    int64_t position = 0;
  };
  std::vector<Waiting> waiting;
};

struct Process {
  bool alive = false;
  bool stopped = false;
  // Grows with every start.
  int incarnation = 0;
  // To the master; a new number for every stream, 0: none.
  int stream = 0;
  std::map<int, Copy> copies;
};

// From a primary to its backup.
struct Feed {
  int part = 0;
  int from = 0;
  int from_incarnation = 0;
  int to = 0;
  int to_incarnation = 0;
  int64_t term = 0;
  // Entries of the primary's log that are sent.
  size_t sent = 0;
  bool synchronized = false;
  // What it begins with.
  std::vector<int> snapshot;
  std::deque<std::pair<size_t, int>> entries;
  std::deque<int64_t> acks;
};

class Schedule {
 public:
  Schedule(uint64_t seed, int servers, bool scales)
      : random_(seed), scales_(scales), parts_(servers), servers_(servers) {
    processes_.resize(kMostServers);
    acked_.resize(kMostServers);
    MakeMaster();
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !failed_; ++i) Step(Below(1000));
    if (failed_) return;
    // Nothing happens any more, except that all come back.
    for (Process& process : processes_) process.stopped = false;
    for (int round = 0; round < 400; ++round) {
      for (int server = 0; server < servers_; ++server) {
        if (!At(server).alive) Start(server);
        if (At(server).stream == 0) Attach(server);
      }
      DeliverAll();
      FeedAll();
      if (round == 200) now_ += absl::Minutes(1);
      Execute(master_->OnTimer(now_));
      FollowServers();
    }
    Check();
  }

  const std::vector<std::string>& story() const { return story_; }
  int64_t takeovers() const { return takeovers_; }
  int64_t scalings() const { return scalings_; }
  int64_t acknowledged() const {
    int64_t sum = 0;
    for (const auto& acked : acked_) sum += static_cast<int64_t>(acked.size());
    return sum;
  }

 private:
  static constexpr int kMostServers = 5;

  uint64_t Below(uint64_t n) { return random_() % n; }
  Process& At(int server) { return processes_[static_cast<size_t>(server)]; }
  int Any() { return static_cast<int>(Below(static_cast<uint64_t>(servers_))); }

  void Step(uint64_t dice) {
    if (dice < 200) return Push();
    if (dice < 500) return DeliverSome();
    if (dice < 900) return FeedSome();
    if (dice < 906) return Kill(Any(), /*lose_log=*/false);
    if (dice < 916) return Kill(Any(), /*lose_log=*/true);
    if (dice < 920) return Stop(Any());
    if (dice < 926) return Wake(Any());
    if (dice < 990) return Start(Any());
    if (dice < 992) return RestartMaster();
    if (dice < 995 && scales_) return Scale();
    now_ += absl::Seconds(static_cast<int64_t>(Below(20)));
    Execute(master_->OnTimer(now_));
  }

  // ---- clients ----
  void Push() {
    const int part = static_cast<int>(Below(static_cast<uint64_t>(parts_)));
    Process& process = At(Any());
    if (!process.alive || process.stopped) return;
    const auto found = process.copies.find(part);
    if (found == process.copies.end()) return;
    Copy& copy = found->second;
    if (!copy.role.primary() || copy.generation != generations_[part]) return;
    // A new one, or one that was tried before.
    int& next = next_push_[part];
    const int push = next > 0 && Below(4) == 0
                         ? std::max(0, next - 1 - static_cast<int>(Below(5)))
                         : next++;
    if (std::find(copy.log.begin(), copy.log.end(), push) == copy.log.end()) {
      copy.log.push_back(push);
      copy.role.OnAppended(static_cast<int64_t>(copy.log.size()));
    }
    copy.waiting.push_back(
        {push, copy.role.term(), static_cast<int64_t>(copy.log.size())});
    Acknowledge(copy);
  }
  void Acknowledge(Copy& copy) {
    std::vector<Copy::Waiting> still;
    for (const Copy::Waiting& waiting : copy.waiting) {
      const auto may = copy.role.MayAcknowledge(waiting.term, waiting.position);
      if (!may.has_value()) {
        still.push_back(waiting);
      } else if (may->ok() && copy.generation == generations_[copy.part]) {
        acked_[static_cast<size_t>(copy.part)].insert(waiting.push);
      }
    }
    copy.waiting = std::move(still);
  }

  // ---- the master ----
  void MakeMaster() {
    ServerBackups::Options options;
    options.servers = parts_;
    options.fits = [this](int part, int64_t version) {
      return version >= least_[part];
    };
    master_ = std::make_unique<ServerBackups>(options);
    for (const auto& [part, record] : journal_) master_->Replay(record);
  }
  void RestartMaster() {
    story_.push_back("the master is restarted");
    MakeMaster();
    master_->Resume(now_);
    for (int server = 0; server < servers_; ++server) {
      NoteLoss(server);
      At(server).stream = 0;
    }
    to_master_.clear();
    to_server_.clear();
  }
  void Execute(const ServerBackups::Decisions& decisions) {
    if (decisions.failure.has_value() && !failed_) {
      failed_ = true;
      story_.push_back(*decisions.failure);
      ADD_FAILURE() << *decisions.failure;
    }
    for (const auto& record : decisions.records) {
      journal_[record.part()] = record;
      story_.push_back(
          absl::StrCat("the journal: ", record.ShortDebugString()));
    }
    for (const int server : decisions.hosting) {
      v1::MasterMessage message;
      v1::PsHosting& hosting = *message.mutable_hosting();
      for (const int part : master_->PartsOn(server)) hosting.add_parts(part);
      SendTo(server, message);
    }
    for (const auto& send : decisions.sends) {
      v1::MasterMessage message;
      *message.mutable_assignment() = send.assignment;
      SendTo(send.server, message);
    }
    for (const master::PartChange& change : decisions.changes) {
      story_.push_back(change.text);
      takeovers_ += change.kind == master::PartChange::Kind::kTakeover;
    }
  }
  void SendTo(int server, const v1::MasterMessage& message) {
    const int stream = At(server).stream;
    if (streams_[server] == stream && stream != 0) {
      to_server_[stream].push_back(message);
    }
  }
  void Scale() {
    const int before = parts_;
    parts_ = 2 + static_cast<int>(Below(kMostServers - 1));
    if (parts_ == before) return;
    ++scalings_;
    story_.push_back(absl::StrCat(before, " parts become ", parts_));
    // What they had has moved before.
    for (int part = parts_; part < before; ++part) {
      acked_[static_cast<size_t>(part)].clear();
      least_[part] = 0;
      ++generations_[part];
    }
    Execute(master_->SetServers(parts_));
    FollowServers();
  }
  // As many processes as have copies.
  void FollowServers() {
    while (servers_ > master_->needed()) {
      const int server = --servers_;
      Kill(server, /*lose_log=*/false);
      Lose(server);
      const int incarnation = At(server).incarnation;
      At(server) = Process();
      At(server).incarnation = incarnation;
    }
    servers_ = master_->needed();
  }
  // What its parts must have when somebody comes back with one.
  void NoteLoss(int server) {
    for (const auto& [part, copy] : At(server).copies) {
      least_[part] =
          static_cast<int64_t>(acked_[static_cast<size_t>(part)].size());
    }
  }
  void Lose(int server) {
    if (streams_[server] == 0) return;
    to_master_.erase(streams_[server]);
    to_server_.erase(streams_[server]);
    streams_[server] = 0;
    NoteLoss(server);
    Execute(master_->OnLost(now_, server));
  }
  void Attach(int server) {
    Process& process = At(server);
    Lose(server);
    process.stream = next_stream_++;
    streams_[server] = process.stream;
    Host(server, master_->PartsOn(server));
    std::vector<int> all;
    for (const auto& [part, copy] : process.copies) all.push_back(part);
    SayHello(server, all);
  }
  // Those that are new.
  std::vector<int> Host(int server, const std::vector<int>& wanted) {
    Process& process = At(server);
    for (auto it = process.copies.begin(); it != process.copies.end();) {
      const bool stays =
          std::find(wanted.begin(), wanted.end(), it->first) != wanted.end();
      it = stays ? std::next(it) : process.copies.erase(it);
    }
    std::vector<int> started;
    for (const int part : wanted) {
      if (process.copies.count(part) != 0) continue;
      Copy& copy = process.copies[part];
      copy.part = part;
      copy.incarnation = next_incarnation_++;
      copy.generation = generations_[part];
      started.push_back(part);
    }
    return started;
  }
  void SayHello(int server, const std::vector<int>& parts) {
    Process& process = At(server);
    v1::WorkerMessage message;
    v1::ServerHello& hello = *message.mutable_server_hello();
    hello.set_server(server);
    for (const int part : parts) {
      const Copy& copy = process.copies.at(part);
      v1::PsCopy& out = *hello.add_copies();
      out.set_part(part);
      out.set_version(static_cast<int64_t>(copy.log.size()));
      // The port of a process that died may be that of the next.
      out.set_address(absl::StrCat(server));
      out.set_incarnation(static_cast<uint64_t>(copy.incarnation));
      copy.role.Describe(out);
    }
    to_master_[process.stream].push_back(message);
  }
  void Tell(int server, Copy& copy, PartRole::Tell tell) {
    if (!tell.has_value()) return;
    tell->set_part(copy.part);
    v1::WorkerMessage message;
    *message.mutable_part_state() = *tell;
    if (At(server).stream == 0) return;
    auto& messages = to_master_[At(server).stream];
    // One thread hears that the backup has everything, another one that it is
    // lost: who comes first to the stream does not follow from that.
    const bool overtakes = tell->has_lost() && !messages.empty() &&
                           messages.back().part_state().part() == copy.part &&
                           messages.back().part_state().has_current() &&
                           Below(2) == 0;
    messages.insert(overtakes ? std::prev(messages.end()) : messages.end(),
                    message);
  }
  int ServerOf(int stream) {
    for (int server = 0; server < servers_; ++server) {
      if (streams_[server] == stream) return server;
    }
    return -1;
  }
  bool DeliverToMaster() {
    for (auto& [stream, messages] : to_master_) {
      const int server = ServerOf(stream);
      if (server < 0 || messages.empty()) continue;
      const v1::WorkerMessage message = messages.front();
      messages.pop_front();
      if (message.has_server_hello()) {
        Execute(master_->OnHello(now_, message.server_hello()));
      } else {
        Execute(master_->OnState(now_, server, message.part_state()));
      }
      return true;
    }
    return false;
  }
  bool DeliverToServer() {
    for (auto& [stream, messages] : to_server_) {
      const int server = ServerOf(stream);
      if (server < 0 || messages.empty() || !At(server).alive ||
          At(server).stopped || At(server).stream != stream) {
        continue;
      }
      const v1::MasterMessage message = messages.front();
      messages.pop_front();
      if (message.has_hosting()) {
        const auto& parts = message.hosting().parts();
        story_.push_back(absl::StrCat("server ", server, " is to have ",
                                      message.hosting().ShortDebugString()));
        const auto started = Host(server, {parts.begin(), parts.end()});
        if (!started.empty()) SayHello(server, started);
        return true;
      }
      const v1::PsAssignment& assignment = message.assignment();
      const auto found = At(server).copies.find(assignment.part());
      if (found == At(server).copies.end()) return true;
      Copy& copy = found->second;
      const int64_t before = copy.role.term();
      const bool counts = copy.role.Assign(assignment);
      if (counts && assignment.primary() && assignment.term() > before) {
        v1::PsPartState serving;
        serving.set_term(assignment.term());
        serving.set_serving(static_cast<int64_t>(copy.log.size()));
        Tell(server, copy, serving);
        Tell(server, copy, copy.role.Question());
      }
      story_.push_back(absl::StrCat(
          "server ", server, ": part ", assignment.part(), ", term ",
          assignment.term(), assignment.primary() ? ", primary" : ", backup",
          assignment.alone() > 0 ? ", alone" : "", counts ? "" : ", void"));
      copy.role.OnAppended(static_cast<int64_t>(copy.log.size()));
      Acknowledge(copy);
      return true;
    }
    return false;
  }
  void DeliverSome() {
    if (Below(2) == 0) {
      DeliverToMaster();
    } else {
      DeliverToServer();
    }
  }
  void DeliverAll() {
    while (DeliverToMaster() || DeliverToServer()) {
    }
  }

  // ---- from primaries to backups ----
  void FeedSome() {
    if (Below(3) == 0) Connect();
    if (feeds_.empty()) return;
    FeedOne(static_cast<size_t>(Below(feeds_.size())));
  }
  void FeedAll() {
    for (int i = 0; i < servers_ * 4; ++i) Connect();
    for (size_t i = 0; i < feeds_.size(); ++i) {
      while (i < feeds_.size() && FeedOne(i)) {
      }
    }
  }
  void Connect() {
    const int server = Any();
    Process& process = At(server);
    if (!process.alive || process.stopped) return;
    for (auto& [part, copy] : process.copies) {
      if (!copy.role.may_synchronize() || FeedOf(server, part) != nullptr) {
        continue;
      }
      const int to = std::stoi(copy.role.backup_address());
      const auto other = At(to).copies.find(part);
      if (other == At(to).copies.end()) continue;
      Feed feed;
      feed.part = part;
      feed.from = server;
      feed.from_incarnation = copy.incarnation;
      feed.to = to;
      feed.to_incarnation = other->second.incarnation;
      feed.term = copy.role.term();
      feed.sent = Below(copy.log.size() + 1);
      feed.snapshot.assign(copy.log.begin(),
                           copy.log.begin() + static_cast<int64_t>(feed.sent));
      copy.role.OnSynchronize(static_cast<uint64_t>(feed.to_incarnation));
      feeds_.push_back(std::move(feed));
    }
  }
  Feed* FeedOf(int server, int part) {
    for (Feed& feed : feeds_) {
      if (feed.from == server && feed.part == part &&
          IsThere(server, part, feed.from_incarnation)) {
        return &feed;
      }
    }
    return nullptr;
  }
  bool IsThere(int server, int part, int incarnation) {
    const auto found = At(server).copies.find(part);
    return At(server).alive && found != At(server).copies.end() &&
           found->second.incarnation == incarnation;
  }
  void EndFeed(size_t index, bool newer_term) {
    const Feed feed = feeds_[index];
    feeds_.erase(feeds_.begin() + static_cast<int64_t>(index));
    if (!IsThere(feed.from, feed.part, feed.from_incarnation)) return;
    Process& process = At(feed.from);
    Copy& copy = process.copies[feed.part];
    if (copy.role.term() != feed.term) return;
    if (newer_term) copy.role.OnNewerTerm();
    Tell(feed.from, copy, copy.role.OnBackupLost("broken"));
    Acknowledge(copy);
  }
  // One thing that one end does. False: there is nothing to do.
  bool FeedOne(size_t index) {
    Feed& feed = feeds_[index];
    Process& from = At(feed.from);
    Process& to = At(feed.to);
    const bool to_there = IsThere(feed.to, feed.part, feed.to_incarnation);
    if (!IsThere(feed.from, feed.part, feed.from_incarnation)) {
      EndFeed(index, false);
      return false;
    }
    Copy& primary = from.copies.at(feed.part);
    const bool wanted = primary.role.primary() &&
                        primary.role.term() == feed.term &&
                        primary.role.backup_address() == absl::StrCat(feed.to);
    if ((!from.stopped && (!to_there || !wanted)) ||
        // It does not answer in time.
        (!from.stopped && to.stopped && Below(4) == 0)) {
      EndFeed(index, false);
      return false;
    }
    const uint64_t what = Below(3);
    if (!from.stopped && (what == 0 || to.stopped) &&
        feed.sent < primary.log.size()) {
      feed.entries.push_back({feed.sent, primary.log[feed.sent]});
      ++feed.sent;
      return true;
    }
    if (!to.stopped && to_there &&
        (!feed.synchronized || !feed.entries.empty())) {
      return Follow(index);
    }
    if (!from.stopped && !feed.acks.empty()) {
      const int64_t position = feed.acks.front();
      feed.acks.pop_front();
      Tell(feed.from, primary, primary.role.OnAck(position));
      Acknowledge(primary);
      return true;
    }
    return feed.sent < primary.log.size() && !from.stopped;
  }
  bool Follow(size_t index) {
    Feed& feed = feeds_[index];
    Copy& backup = At(feed.to).copies.at(feed.part);
    const absl::Status may = backup.role.CheckFollow(feed.term);
    if (!may.ok()) {
      EndFeed(index, absl::IsFailedPrecondition(may));
      return false;
    }
    if (!feed.synchronized) {
      feed.synchronized = true;
      backup.log = feed.snapshot;
      backup.role.OnFollowed();
    } else {
      const auto [number, push] = feed.entries.front();
      feed.entries.pop_front();
      if (number != backup.log.size()) {
        EndFeed(index, false);
        return false;
      }
      backup.log.push_back(push);
    }
    feed.acks.push_back(static_cast<int64_t>(backup.log.size()));
    return true;
  }

  // ---- faults ----
  // Would the loss of its logs leave every part with a copy that has all?
  bool MayLoseLogs(int server) {
    for (int other = 0; other < servers_; ++other) {
      if (!At(other).alive || streams_[other] == 0) return false;
    }
    for (const auto& [part, copy] : At(server).copies) {
      if (part >= parts_) continue;
      const int other = master_->PrimaryOf(part);
      if (other == server) {
        if (!master_->HasBackup(part)) return false;
        // Otherwise the backup is lost for it, too.
        if (copy.role.state() != PartRole::State::kCurrent) return false;
      } else if (At(other).copies.count(part) == 0 ||
                 !At(other).copies.at(part).role.primary() ||
                 // The master may be about to prefer the copy that is lost.
                 At(other).stopped || !to_master_[streams_[other]].empty()) {
        return false;
      }
    }
    return true;
  }
  void Kill(int server, bool lose_log) {
    Process& process = At(server);
    if (!process.alive) return;
    if (lose_log && !MayLoseLogs(server)) return;
    story_.push_back(absl::StrCat("server ", server, " is killed",
                                  lose_log ? " and loses its logs" : ""));
    process.alive = false;
    process.stopped = false;
    process.stream = 0;
    for (auto& [part, copy] : process.copies) {
      copy.role = PartRole();
      copy.incarnation = next_incarnation_++;
      copy.waiting.clear();
      if (lose_log) copy.log.clear();
    }
    // What it said may be heard or not.
    if (Below(2) == 0) DeliverAll();
    Lose(server);
  }
  void Stop(int server) {
    if (!At(server).alive) return;
    story_.push_back(absl::StrCat("server ", server, " is stopped"));
    At(server).stopped = true;
    // Noticed, or not before it is awake again.
    if (Below(3) > 0) {
      Lose(server);
      At(server).stream = 0;
    }
  }
  void Wake(int server) {
    if (!At(server).stopped) return;
    story_.push_back(absl::StrCat("server ", server, " wakes up"));
    At(server).stopped = false;
  }
  void Start(int server) {
    Process& process = At(server);
    if (!process.alive) {
      process.alive = true;
      ++process.incarnation;
      story_.push_back(absl::StrCat("server ", server, " is started"));
      for (const auto& [part, copy] : process.copies) {
        story_.back() +=
            absl::StrCat(", part ", part, " has ", copy.log.size());
      }
    }
    if (process.stream == 0 && !process.stopped) Attach(server);
  }

  void Check() {
    EXPECT_EQ(servers_, parts_);
    for (int part = 0; part < parts_; ++part) {
      const Copy& primary = At(master_->PrimaryOf(part)).copies[part];
      EXPECT_TRUE(primary.role.primary()) << "part " << part;
      const std::set<int> there(primary.log.begin(), primary.log.end());
      EXPECT_EQ(there.size(), primary.log.size()) << "part " << part;
      for (const int push : acked_[static_cast<size_t>(part)]) {
        EXPECT_TRUE(there.count(push) != 0)
            << "push " << push << " of part " << part << " is lost";
      }
      EXPECT_TRUE(master_->HasBackup(part)) << "part " << part;
      int others = 0;
      for (Process& process : processes_) {
        const auto found = process.copies.find(part);
        if (found == process.copies.end()) continue;
        EXPECT_EQ(found->second.log, primary.log) << "part " << part;
        others += found->second.role.primary();
      }
      EXPECT_EQ(others, 1) << "part " << part;
    }
  }

  std::mt19937_64 random_;
  const bool scales_;
  int parts_;
  // Processes that there are to be.
  int servers_;
  int next_incarnation_ = 1;
  std::map<int, int> generations_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Process> processes_;
  std::vector<std::set<int>> acked_;
  std::map<int, int> next_push_;
  std::map<int, int64_t> least_;
  std::map<int, v1::PsPartRecord> journal_;
  std::unique_ptr<ServerBackups> master_;
  // By server: the stream that the master knows.
  std::map<int, int> streams_;
  int next_stream_ = 1;
  std::map<int, std::deque<v1::WorkerMessage>> to_master_;
  std::map<int, std::deque<v1::MasterMessage>> to_server_;
  std::vector<Feed> feeds_;
  std::vector<std::string> story_;
  int64_t takeovers_ = 0;
  int64_t scalings_ = 0;
  bool failed_ = false;
};

class BackupScheduleTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Servers, BackupScheduleTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "ComeAndGo" : "Stay";
                         });

TEST_P(BackupScheduleTest, NothingAcknowledgedIsLost) {
  int64_t takeovers = 0;
  int64_t scalings = 0;
  int64_t acknowledged = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Schedule schedule(seed, 2 + static_cast<int>(seed % 3), GetParam());
    schedule.Run(1500);
    takeovers += schedule.takeovers();
    scalings += schedule.scalings();
    acknowledged += schedule.acknowledged();
    if (!testing::Test::HasFailure()) continue;
    for (const std::string& line : schedule.story()) std::cout << line << "\n";
    return;
  }
  // The schedules are worth something.
  EXPECT_GT(takeovers, 3000);
  EXPECT_GT(acknowledged, 100000);
  EXPECT_GT(scalings, GetParam() ? 3000 : -1);
  std::cout << takeovers << " takeovers, " << scalings << " scalings, "
            << acknowledged << " pushes acknowledged\n";
}

}  // namespace
}  // namespace elasticdl::ps
