// Proves from the audits of all parameter servers (--ps_audit; docs/formats.md)
// that each record which was committed is in every bucket of the model exactly
// once, whichever servers had the bucket meanwhile and whichever copy of a part
// was the primary. Shares no code with the programs it checks.
//
//   1. The files of one part are put together. Entries of one term are the same
//      wherever they were written. A term that begins at entry P makes void
//      what earlier terms have from P on: nobody had acknowledged it. But a
//      part that has given all its buckets away may begin again with entry 0.
//   2. The entries of the part, in order, tell which buckets it had when, and
//      so which pushes each bucket got.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/ledger_counts.h"

namespace elasticdl::test {

// Thread-compatible.
class PsAuditCheck {
 public:
  explicit PsAuditCheck(Findings& findings) : findings_(findings) {}

  void Read(const std::string& path);
  // `partial`: records that are not committed may be there once.
  void Compare(const Counts& committed, bool partial);

 private:
  using Json = nlohmann::json;
  static constexpr int kBuckets = 1024;

  // Lines of one entry: a commit has several.
  struct Entry {
    std::vector<Json> lines;
    // Where it was read first.
    std::string path;
  };
  struct Term {
    // -1: no primary has written it.
    int64_t begins = -1;
    std::map<int64_t, Entry> entries;
  };
  // What a bucket got from a part: lines [from, to) of a life of it.
  struct Stay {
    int life = 0;
    size_t from = 0;
    size_t to = 0;
    bool operator<(const Stay& o) const {
      return std::tie(life, from, to) < std::tie(o.life, o.from, o.to);
    }
  };
  struct Bucket {
    std::vector<Stay> stays;
    // Pushes that it got beside these, and those of them that it did not get.
    std::vector<const Json*> more;
    std::vector<const Json*> fewer;
    bool here = false;
  };
  // How often each record was applied.
  using Applied =
      std::map<std::pair<int64_t, std::string>, std::map<int64_t, int>>;

  // The valid lines of a part's lives.
  std::vector<std::vector<Json>> Lives(int part) const;
  static std::set<int> BucketsAfter(const std::map<int64_t, Entry>& entries);
  void AddLife(int part, int life);
  static void Add(const Json& push, int by, Applied& applied);
  void CompareOne(int bucket, const Applied& applied, const Counts& committed,
                  bool partial);

  Findings& findings_;
  // By part and term.
  std::map<int, std::map<int64_t, Term>> parts_;
  std::vector<std::vector<Json>> lives_;
  std::map<int, Bucket> buckets_;
};

}  // namespace elasticdl::test
