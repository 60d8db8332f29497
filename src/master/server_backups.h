// Which copy is the primary of each part of the model, and which may take over
// (--ps_backup; docs/design/0006-parameter-servers.md, "Backups"). Pure: events
// in, decisions out, time as an argument.
//
// Part i has two copies: copy 0 on server i, copy 1 on its *host*, server i+1
// (the last part's on server 0). One of them is the primary of the part's term.
// When the number of servers changes, the host of one part must change:
//
//   the primary   the other copy         what happens
//   ------------  --------------------- ---------------------------------------
//   copy 0        current                as soon as the new host is there, the
//                                        primary is told to do without: it
//                                        asks, and is alone
//   copy 0        anything else          copy 1 begins anew on the new host
//   copy 1        current                copy 0 becomes the primary, then as
//                                        above. It asks before it acknowledges
//                                        anything: if it is lost before that,
//                                        copy 1 is the primary again
//   copy 1        anything else          wait for copy 0
//
//   the primary   the backup             what happens
//   ------------  --------------------- ---------------------------------------
//   in its role   away                   the primary is told; it asks, and goes
//                                        on alone when that is recorded
//   in its role   there                  the primary is told where; it
//                                        synchronizes the backup
//   in its role   says it has all        recorded: the backup is current
//   lost          current, in its role   the backup becomes the primary
//   restarted     current, in its role   the same
//   restarted     anything else          it goes on if its log has what it
//                                        acknowledged
//   lost          current, restarted     the backup becomes the primary if its
//                                        log has what was acknowledged
//   lost          not current            wait for the primary
//   restarted with too little:
//                 current and away       wait for the backup
//                 anything else          the job fails
//
// After a restart of the master no server counts as lost at first: a silent
// primary may still be working. It is lost when it has not attached in time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/v1/master.pb.h"
#include "elasticdl/v1/ps.pb.h"
#include "part_change.h"

namespace elasticdl::master {

// Thread-compatible.
class ServerBackups {
 public:
  struct Options {
    // Parts, and servers for them.
    int servers = 2;
    // Does a copy of this version have all that was acknowledged of the part?
    std::function<bool(int part, int64_t version)> fits;
    // How long a server may take to come back to a restarted master.
    absl::Duration resume_grace = absl::Seconds(30);
  };
  // In this order.
  struct Decisions {
    // To be recorded before anything else is done.
    std::vector<v1::PsPartRecord> records;
    // Parts that workers cannot reach any more.
    std::vector<int> away;
    // Servers that are to be told PartsOn, because it has changed.
    std::set<int> hosting;
    struct Send {
      int server = 0;
      v1::PsAssignment assignment;
    };
    std::vector<Send> sends;
    // Parts that workers can reach, there.
    struct Serving {
      int part = 0;
      std::string address;
      int64_t version = 0;
    };
    std::vector<Serving> serving;
    std::vector<PartChange> changes;
    // Both copies of a part are lost.
    std::optional<std::string> failure;
  };

  explicit ServerBackups(Options options);

  // A master before this one has recorded this.
  void Replay(const v1::PsPartRecord& record);
  // After that, before any event: its servers may come back.
  void Resume(absl::Time now);
  std::vector<v1::PsPartRecord> Records() const;

  // Sets the number of parts, 2 or more. Parts beyond it must hold nothing.
  Decisions SetServers(int servers);
  int parts() const { return servers_; }
  // Servers 0 .. needed()-1 have copies.
  int needed() const;
  // These servers and those after them were told to end.
  void ForgetFrom(int server) {
    attached_.erase(attached_.lower_bound(server), attached_.end());
  }
  // Of which parts the server has a copy.
  std::vector<int> PartsOn(int server) const;

  // A server that was there already may say hello again, after it was lost for
  // this master or without that: with all that it has, or with what is new.
  Decisions OnHello(absl::Time now, const v1::ServerHello& hello);
  Decisions OnLost(absl::Time now, int server);
  Decisions OnState(absl::Time now, int server, const v1::PsPartState& state);
  Decisions OnTimer(absl::Time now);
  absl::Time next_timer() const { return resume_until_; }

  // The server whose copy is the part's primary.
  int PrimaryOf(int part) const;
  // Its other copy could take over now.
  bool HasBackup(int part) const;

 private:
  struct Copy {
    bool attached = false;
    // Of a master before this one: it may still be at work.
    bool awaited = false;
    // What it said when it came.
    v1::PsCopy hello;
    // The term that it was assigned since, or came with; 0: none.
    int64_t term = 0;
    // It came without a role, or without anything from the primary of its term.
    bool restarted = false;
    // The newest of its questions that was answered: what comes late is void.
    int64_t answered = 0;
  };
  struct Part {
    int64_t term = 0;
    int primary = 0;
    bool current = false;
    // The server of copy 1.
    int host = 0;
    std::array<Copy, 2> copies;
    // The primary has said that it answers workers.
    bool serves = false;
    // The primary is to do without its backup, which is to be elsewhere.
    bool releases = false;
    // Copy 0 has it from copy 1 and may not have acknowledged anything yet.
    bool handed_over = false;
    // The incarnation of the backup that has all; 0: not known.
    uint64_t backup = 0;
    // Where the primary looks for its backup; nothing: not known.
    std::optional<std::string> told;
  };

  int ServerOf(int part, int copy) const {
    return copy == 0 ? part : parts_[static_cast<size_t>(part)].host;
  }
  // Where copy 1 belongs.
  int GoalOf(int part) const { return (part + 1) % servers_; }
  // Nothing for a part that the server has no copy of.
  std::optional<int> CopyOn(int server, int part) const;
  bool AllCurrent() const;
  v1::PsPartRecord RecordOf(int part) const;
  // Where the primary is to look for its backup; empty: nowhere.
  static std::string BackupAddress(const Part& part) {
    return part.releases ? "" : part.copies[1 - part.primary].hello.address();
  }
  // In the part's term.
  static bool InRole(const Part& part, int copy);
  // It has what the primary acknowledged.
  static bool IsCurrent(const Part& part, int copy);
  bool HasAll(int number, int copy) const;
  void Attach(int number, int copy, const v1::PsCopy& hello, Decisions& out);
  void Decide(int number, Decisions& out);
  // Towards a host that is where it belongs.
  void Place(int number, Decisions& out);
  void PlaceAll(Decisions& out);
  // The part is no more.
  void Remove(int number, Decisions& out);
  void Promote(int number, int copy, Decisions& out, bool handed_over = false);
  void Assign(int number, int copy, int64_t alone, Decisions& out);
  void Degrade(int number, const std::string& why, Decisions& out);

  const Options options_;
  int servers_;
  // Those that are no more keep their terms.
  std::vector<Part> parts_;
  // Servers that are there.
  std::set<int> attached_;
  absl::Time resume_until_ = absl::InfiniteFuture();
};

}  // namespace elasticdl::master
