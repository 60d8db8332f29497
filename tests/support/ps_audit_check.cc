#include "support/ps_audit_check.h"

#include <fstream>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace elasticdl::test {

void PsAuditCheck::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string text;
  Term* term = nullptr;
  // Of the last lines, which may have more of them.
  int64_t last = -1;
  std::map<int64_t, Entry> seen;
  // Entries of this file's term are compared when they are complete.
  const auto flush = [&] {
    for (auto& [number, entry] : seen) {
      const auto [at, is_new] = term->entries.emplace(number, entry);
      if (!is_new && at->second.lines != entry.lines) {
        findings_.Add(path, ": entry ", number, " differs from that in ",
                      at->second.path, ": ", Json(entry.lines).dump());
      }
    }
    seen.clear();
    last = -1;
  };
  while (std::getline(file, text)) {
    Json json = Json::parse(text);
    if (json.contains("term")) {
      if (term != nullptr) flush();
      term = &parts_[json.at("server")][json.at("term")];
      if (!json.contains("begins")) continue;
      if (term->begins >= 0 && term->begins != json.at("begins")) {
        findings_.Add(path, ": term ", json.at("term"), " began before");
      }
      term->begins = json.at("begins");
      continue;
    }
    if (term == nullptr) throw std::runtime_error(path + " has no beginning");
    const int64_t number = json.at("entry");
    Entry& entry = seen[number];
    if (number < last || (number != last && !entry.lines.empty())) {
      findings_.Add(path, ": entry ", number, " after ", last);
    }
    last = number;
    entry.path = path;
    entry.lines.push_back(std::move(json));
  }
  if (term != nullptr) flush();
}

std::set<int> PsAuditCheck::BucketsAfter(
    const std::map<int64_t, Entry>& entries) {
  std::set<int> buckets;
  for (const auto& [number, entry] : entries) {
    for (const Json& line : entry.lines) {
      for (const int b : line.value("gets", std::vector<int>())) {
        buckets.insert(b);
      }
      for (const int b : line.value("gives", std::vector<int>())) {
        buckets.erase(b);
      }
    }
  }
  return buckets;
}

std::vector<std::vector<PsAuditCheck::Json>> PsAuditCheck::Lives(
    int part) const {
  std::vector<std::vector<Json>> lives;
  std::map<int64_t, Entry> history;
  const auto end_life = [&] {
    std::vector<Json>& lines = lives.emplace_back();
    for (const auto& [number, entry] : history) {
      lines.insert(lines.end(), entry.lines.begin(), entry.lines.end());
    }
    history.clear();
  };
  for (const auto& [number, term] : parts_.at(part)) {
    if (term.begins < 0) {
      findings_.Add("part ", part, ": nobody says where term ", number,
                    " begins");
    } else if (term.begins == 0 && BucketsAfter(history).empty()) {
      end_life();
    } else {
      history.erase(history.lower_bound(term.begins), history.end());
    }
    for (const auto& [entry, lines] : term.entries) history[entry] = lines;
  }
  end_life();
  return lives;
}

void PsAuditCheck::AddLife(int part, int life) {
  int64_t version = 0;
  std::map<int, size_t> here;
  const std::vector<Json>& lines = lives_[static_cast<size_t>(life)];
  const auto leaves = [&](int b, size_t at) {
    buckets_[b].stays.push_back({life, here.at(b), at});
    here.erase(b);
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    if (line.contains("version")) {
      if (line.at("version") < version) {
        findings_.Add("part ", part, ": version ", line.at("version"),
                      " after ", version);
      }
      version = line.at("version");
    }
    for (const int b : line.value("gets", std::vector<int>())) {
      if (!here.emplace(b, i).second) {
        findings_.Add("part ", part, " gets bucket ", b, ", which it has");
      }
    }
    for (const int b : line.value("gives", std::vector<int>())) {
      if (here.count(b) == 0) {
        findings_.Add("part ", part, " gives bucket ", b, ", which it has not");
        continue;
      }
      leaves(b, i);
    }
    for (const int b : line.value("buckets", std::vector<int>())) {
      buckets_[b].more.push_back(&line);
    }
    for (const int b : line.value("but", std::vector<int>())) {
      buckets_[b].fewer.push_back(&line);
    }
  }
  while (!here.empty()) {
    Bucket& bucket = buckets_[here.begin()->first];
    if (std::exchange(bucket.here, true)) {
      findings_.Add("bucket ", here.begin()->first, " is on two servers");
    }
    leaves(here.begin()->first, lines.size());
  }
}

void PsAuditCheck::Add(const Json& push, int by, Applied& applied) {
  auto& records = applied[{push.at("epoch"), push.at("shard")}];
  for (int64_t i = push.at("begin"); i < push.at("end"); ++i) records[i] += by;
}

void PsAuditCheck::CompareOne(int bucket, const Applied& applied,
                              const Counts& committed, bool partial) {
  for (const auto& [shard, records] : committed) {
    const auto mine = applied.find(shard);
    for (const auto& [record, count] : records) {
      int found = 0;
      if (mine != applied.end()) {
        const auto at = mine->second.find(record);
        if (at != mine->second.end()) found = at->second;
      }
      if (found == count.second ||
          (partial && count.second == 0 && found == 1)) {
        continue;
      }
      findings_.Add("bucket ", bucket, ": record ", record, " of ",
                    shard.second, " in epoch ", shard.first, " was applied ",
                    found, " times and committed ", count.second, " times");
    }
  }
  for (const auto& [shard, records] : applied) {
    const auto known = committed.find(shard);
    for (const auto& [record, count] : records) {
      if (known != committed.end() && known->second.count(record) > 0) continue;
      findings_.Add("bucket ", bucket, ": record ", record, " of ",
                    shard.second, " in epoch ", shard.first, " is unknown");
    }
  }
}

void PsAuditCheck::Compare(const Counts& committed, bool partial) {
  std::vector<int> part_of;
  for (const auto& [part, terms] : parts_) {
    for (std::vector<Json>& life : Lives(part)) {
      lives_.push_back(std::move(life));
      part_of.push_back(part);
    }
  }
  for (size_t i = 0; i < lives_.size(); ++i) {
    AddLife(part_of[i], static_cast<int>(i));
  }
  // Most buckets went the same way as others.
  std::map<std::vector<Stay>, std::vector<int>> ways;
  for (int b = 0; b < kBuckets; ++b) {
    if (!buckets_[b].here) findings_.Add("bucket ", b, " is on no server");
    ways[buckets_[b].stays].push_back(b);
  }
  for (const auto& [stays, buckets] : ways) {
    Applied applied;
    for (const Stay& stay : stays) {
      for (size_t i = stay.from; i < stay.to; ++i) {
        const Json& line = lives_[static_cast<size_t>(stay.life)][i];
        if (line.contains("epoch") && !line.value("catch_up", false)) {
          Add(line, 1, applied);
        }
      }
    }
    bool compared = false;
    for (const int b : buckets) {
      const Bucket& bucket = buckets_[b];
      if (bucket.more.empty() && bucket.fewer.empty()) {
        if (!std::exchange(compared, true)) {
          CompareOne(b, applied, committed, partial);
        }
        continue;
      }
      Applied own = applied;
      for (const Json* push : bucket.more) Add(*push, 1, own);
      for (const Json* push : bucket.fewer) Add(*push, -1, own);
      CompareOne(b, own, committed, partial);
    }
  }
}

}  // namespace elasticdl::test
