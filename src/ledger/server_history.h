// The files of --ps_audit, put together: what each part of the model got.
//
// Copies of an entry of one term must be equal. A term that begins at entry P
// makes void what earlier terms have from P on: nobody had acknowledged it. A
// part that has given all its buckets away may begin again with entry 0; what
// follows is another *life* of it.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"

namespace elasticdl {

// A line of an audit that is no beginning of a term.
struct ServerLine {
  enum class Kind { kPush, kGets, kGives };
  Kind kind = Kind::kPush;
  // That come or go. Of a push: that had it already or, with `catch_up`, the
  // only ones to which it was applied.
  std::vector<int> buckets;
  // Of a push. Names of shards are kept once, so that the pointers tell whether
  // they are equal.
  int64_t epoch = 0;
  const std::string* shard = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t version = 0;
  bool catch_up = false;

  bool operator==(const ServerLine& o) const {
    const auto all = [](const ServerLine& l) {
      return std::tie(l.kind, l.buckets, l.epoch, l.shard, l.begin, l.end,
                      l.version, l.catch_up);
    };
    return all(*this) == all(o);
  }
};

// Thread-compatible.
class ServerHistory {
 public:
  static constexpr int kBuckets = 1024;
  // The valid lines of a life, in order.
  using Life = std::vector<const ServerLine*>;
  // Is told what is wrong.
  using Find = std::function<void(std::string)>;

  // As ServerAudit::Read.
  absl::Status Read(const std::string& name, std::istream& in);

  // By part. Valid until the next Read.
  std::map<int64_t, std::vector<Life>> Lives(const Find& find) const;
  // What was wrong while reading.
  const std::vector<std::string>& findings() const { return findings_; }
  int64_t files() const { return files_; }

 private:
  // A commit has several lines.
  struct Entry {
    std::vector<ServerLine> lines;
    // Where it was read first.
    std::string file;
  };
  using Entries = std::map<int64_t, Entry>;
  struct Term {
    // -1: no primary has written it.
    int64_t begins = -1;
    Entries entries;
  };
  // The file that is being read.
  struct File {
    std::string name;
    Term* term = nullptr;
    // Since the last beginning of a term.
    Entries entries;
  };

  absl::Status AddText(const std::string& text, File& file);
  absl::Status AddTerm(const nlohmann::json& line, File& file);
  absl::Status AddEntry(const nlohmann::json& line, File& file);
  absl::Status ReadPush(const nlohmann::json& line, ServerLine& push);
  // Merges what was read since the beginning of the term.
  void EndTerm(File& file);
  static bool HasBuckets(const std::map<int64_t, const Entry*>& entries);

  int64_t files_ = 0;
  std::string run_;
  std::set<std::string> shards_;
  std::map<int64_t, std::map<int64_t, Term>> parts_;
  std::vector<std::string> findings_;
};

}  // namespace elasticdl
