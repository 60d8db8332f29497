#include "elasticdl/server_audit.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server_history.h"

namespace elasticdl {
namespace {

constexpr size_t kMostFindings = 10;

// What a bucket got from a part: lines [from, to) of one of all lives.
struct Stay {
  size_t life = 0;
  size_t from = 0;
  size_t to = 0;
  bool operator<(const Stay& o) const {
    return std::tie(life, from, to) < std::tie(o.life, o.from, o.to);
  }
};

// What a bucket got from all.
struct Past {
  std::vector<Stay> stays;
  // Pushes that it got beside these, and those of them that it did not get.
  std::vector<const ServerLine*> more;
  std::vector<const ServerLine*> fewer;
  bool operator<(const Past& o) const {
    return std::tie(stays, more, fewer) < std::tie(o.stays, o.more, o.fewer);
  }
};

// Changes of two counts at a position: how often it is in the bucket, and how
// often it was committed.
struct Change {
  int64_t at = 0;
  int64_t applied = 0;
  int64_t committed = 0;
};
// By epoch and shard.
using Changes =
    std::map<std::pair<int64_t, absl::string_view>, std::vector<Change>>;

// One call of ServerAudit::Check.
class Comparison {
 public:
  Comparison(const LedgerAudit& ledger, bool partial)
      : ledger_(ledger), partial_(partial) {}

  void Find(std::string finding) {
    ++result_.findings;
    if (result_.places.size() < kMostFindings) {
      result_.places.push_back(std::move(finding));
    }
  }
  void AddLife(int64_t part, const ServerHistory::Life& life);
  // After all lives.
  void CompareAll();
  ServerAuditResult& result() { return result_; }

 private:
  struct Bucket {
    Past past;
    // Since which line of the life that is being added; -1: it is not there.
    int64_t since = -1;
    int64_t owners = 0;
  };

  void Get(int64_t part, int bucket, size_t line);
  void Leave(int bucket, size_t line);
  static void Add(const ServerLine& push, int64_t by, Changes& changes);
  void Compare(const Past& past, const std::string& who);
  // Returns how many records are there that were not committed.
  int64_t CompareShard(const std::string& where, std::vector<Change> changes);

  const LedgerAudit& ledger_;
  const bool partial_;
  std::vector<ServerHistory::Life> lives_;
  std::array<Bucket, ServerHistory::kBuckets> buckets_;
  ServerAuditResult result_;
};

void Comparison::Get(int64_t part, int bucket, size_t line) {
  Bucket& one = buckets_[static_cast<size_t>(bucket)];
  if (one.since >= 0) {
    Find(
        absl::StrCat("part ", part, " gets bucket ", bucket, ", which it has"));
    return;
  }
  one.since = static_cast<int64_t>(line);
}

void Comparison::Leave(int bucket, size_t line) {
  Bucket& one = buckets_[static_cast<size_t>(bucket)];
  one.past.stays.push_back(
      {lives_.size() - 1, static_cast<size_t>(one.since), line});
  one.since = -1;
}

void Comparison::AddLife(int64_t part, const ServerHistory::Life& life) {
  lives_.push_back(life);
  int64_t version = 0;
  for (size_t i = 0; i < life.size(); ++i) {
    const ServerLine& line = *life[i];
    if (line.kind == ServerLine::Kind::kPush) {
      if (line.version < version) {
        Find(absl::StrCat("part ", part, ": version ", line.version, " after ",
                          version));
      }
      version = line.version;
    }
    for (const int bucket : line.buckets) {
      Bucket& one = buckets_[static_cast<size_t>(bucket)];
      if (line.kind == ServerLine::Kind::kGets) {
        Get(part, bucket, i);
      } else if (line.kind == ServerLine::Kind::kPush) {
        (line.catch_up ? one.past.more : one.past.fewer).push_back(&line);
      } else if (one.since < 0) {
        Find(absl::StrCat("part ", part, " gives bucket ", bucket,
                          ", which it does not have"));
      } else {
        Leave(bucket, i);
      }
    }
  }
  for (int bucket = 0; bucket < ServerHistory::kBuckets; ++bucket) {
    Bucket& one = buckets_[static_cast<size_t>(bucket)];
    if (one.since < 0) continue;
    ++one.owners;
    Leave(bucket, life.size());
  }
}

void Comparison::Add(const ServerLine& push, int64_t by, Changes& changes) {
  std::vector<Change>& list = changes[{push.epoch, *push.shard}];
  list.push_back({push.begin, by, 0});
  list.push_back({push.end, -by, 0});
}

void Comparison::CompareAll() {
  std::map<Past, std::vector<int>> pasts;
  for (int bucket = 0; bucket < ServerHistory::kBuckets; ++bucket) {
    const Bucket& one = buckets_[static_cast<size_t>(bucket)];
    if (one.owners != 1) {
      Find(absl::StrCat("bucket ", bucket, " is on ",
                        one.owners == 0 ? std::string("no server")
                                        : absl::StrCat(one.owners, " servers"),
                        " at the end"));
    }
    // Nothing else can be said of a bucket that nobody had.
    if (!one.past.stays.empty()) pasts[one.past].push_back(bucket);
  }
  for (const auto& [past, buckets] : pasts) {
    Compare(past, buckets.size() == 1
                      ? absl::StrCat("bucket ", buckets[0])
                      : absl::StrCat("bucket ", buckets[0], " and ",
                                     buckets.size() - 1, " more"));
  }
}

void Comparison::Compare(const Past& past, const std::string& who) {
  Changes changes;
  for (const Stay& stay : past.stays) {
    for (size_t i = stay.from; i < stay.to; ++i) {
      const ServerLine& line = *lives_[stay.life][i];
      if (line.kind == ServerLine::Kind::kPush && !line.catch_up) {
        Add(line, 1, changes);
      }
    }
  }
  for (const ServerLine* push : past.more) Add(*push, 1, changes);
  for (const ServerLine* push : past.fewer) Add(*push, -1, changes);
  for (const auto& [key, ranges] : ledger_.ranges()) {
    std::vector<Change>& list = changes[{key.first, key.second}];
    for (const AuditRange& range : ranges) {
      list.push_back({range.begin, 0, 1});
      list.push_back({range.end, 0, -1});
    }
  }
  int64_t not_committed = 0;
  for (auto& [key, list] : changes) {
    not_committed += CompareShard(
        absl::StrCat(who, ": epoch ", key.first + 1, ", ", key.second),
        std::move(list));
  }
  result_.not_committed = std::max(result_.not_committed, not_committed);
}

int64_t Comparison::CompareShard(const std::string& where,
                                 std::vector<Change> changes) {
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  // A finding that goes on from here.
  std::string wrong;
  int64_t since = 0;
  const auto end = [&](int64_t at) {
    if (wrong.empty()) return;
    Find(absl::StrCat(where, ", positions ", since, " to ", at, ": ", wrong));
  };
  int64_t not_committed = 0;
  int64_t applied = 0;
  int64_t committed = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    applied += changes[i].applied;
    committed += changes[i].committed;
    const int64_t at = changes[i].at;
    const int64_t next = i + 1 < changes.size() ? changes[i + 1].at : at;
    // More of them at this position; but the last one ends what is open.
    if (next == at && i + 1 < changes.size()) continue;
    std::string now;
    if (committed == 0 && applied == 1) {
      not_committed += next - at;
      if (!partial_) now = "applied, but not committed";
    } else if (applied != (committed > 0 ? 1 : 0)) {
      now = absl::StrCat(committed > 0 ? "committed" : "not committed",
                         ", but applied ", applied, " times");
    }
    if (now == wrong) continue;
    end(at);
    wrong = now;
    since = at;
  }
  return not_committed;
}

}  // namespace

ServerAudit::ServerAudit() : history_(std::make_unique<ServerHistory>()) {}
ServerAudit::~ServerAudit() = default;

absl::Status ServerAudit::Read(const std::string& name, std::istream& in) {
  return history_->Read(name, in);
}

ServerAuditResult ServerAudit::Check(const LedgerAudit& ledger,
                                     bool partial) const {
  Comparison comparison(ledger, partial);
  for (const std::string& finding : history_->findings()) {
    comparison.Find(finding);
  }
  const auto parts = history_->Lives(
      [&](std::string finding) { comparison.Find(std::move(finding)); });
  for (const auto& [part, lives] : parts) {
    for (const ServerHistory::Life& life : lives) {
      comparison.AddLife(part, life);
    }
  }
  comparison.CompareAll();
  comparison.result().files = history_->files();
  comparison.result().parts = static_cast<int64_t>(parts.size());
  return comparison.result();
}

}  // namespace elasticdl
