#include "server_history.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"

namespace elasticdl {
namespace {

using Line = nlohmann::json;

absl::StatusOr<int64_t> Number(const Line& line, const char* name) {
  if (!line.contains(name) || !line.at(name).is_number_integer() ||
      line.at(name).get<int64_t>() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is missing, or is no number"));
  }
  return line.at(name).get<int64_t>();
}

absl::StatusOr<std::vector<int>> Buckets(const Line& line, const char* name) {
  const Line& list = line.at(name);
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no list of buckets"));
  };
  if (!list.is_array()) return wrong();
  std::vector<int> buckets;
  for (const Line& one : list) {
    if (!one.is_number_integer()) return wrong();
    const auto number = one.get<int64_t>();
    if (number < 0 || number >= ServerHistory::kBuckets) return wrong();
    buckets.push_back(static_cast<int>(number));
  }
  return buckets;
}

}  // namespace

absl::Status ServerHistory::Read(const std::string& name, std::istream& in) {
  File file;
  file.name = name;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    if (in.eof()) break;
    if (const absl::Status added = AddText(text, file); !added.ok()) {
      return Annotate(added, absl::StrCat("line ", number));
    }
  }
  EndTerm(file);
  ++files_;
  return absl::OkStatus();
}

absl::Status ServerHistory::AddText(const std::string& text, File& file) {
  const Line line = ParseJson(text);
  if (!line.is_object()) return absl::InvalidArgumentError("no JSON object");
  return line.contains("term") ? AddTerm(line, file) : AddEntry(line, file);
}

absl::Status ServerHistory::AddTerm(const Line& line, File& file) {
  EndTerm(file);
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t part, Number(line, "server"));
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t number, Number(line, "term"));
  if (line.contains("run") && line.at("run").is_string()) {
    const auto run = line.at("run").get<std::string>();
    if (run_.empty()) run_ = run;
    if (run != run_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "it is of run ", run, " of the job, other files are of ", run_));
    }
  }
  Term& term = parts_[part][number];
  file.term = &term;
  if (!line.contains("begins")) return Number(line, "follows").status();
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t begins, Number(line, "begins"));
  if (term.begins >= 0 && term.begins != begins) {
    findings_.push_back(absl::StrCat(file.name, ": term ", number, " of part ",
                                     part, " begins at entry ", begins,
                                     ", elsewhere at ", term.begins));
  }
  term.begins = begins;
  return absl::OkStatus();
}

absl::Status ServerHistory::ReadPush(const Line& line, ServerLine& push) {
  ELASTICDL_ASSIGN_OR_RETURN(push.epoch, Number(line, "epoch"));
  ELASTICDL_ASSIGN_OR_RETURN(push.begin, Number(line, "begin"));
  ELASTICDL_ASSIGN_OR_RETURN(push.end, Number(line, "end"));
  ELASTICDL_ASSIGN_OR_RETURN(push.version, Number(line, "version"));
  if (push.begin >= push.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("from ", push.begin, " to ", push.end, " is no range"));
  }
  if (!line.contains("shard") || !line.at("shard").is_string()) {
    return absl::InvalidArgumentError("shard is missing");
  }
  push.shard = &*shards_.insert(line.at("shard").get<std::string>()).first;
  push.catch_up = line.contains("catch_up") && line.at("catch_up") == true;
  const char* buckets = push.catch_up ? "buckets" : "but";
  if (line.contains(buckets)) {
    ELASTICDL_ASSIGN_OR_RETURN(push.buckets, Buckets(line, buckets));
  }
  return absl::OkStatus();
}

absl::Status ServerHistory::AddEntry(const Line& line, File& file) {
  if (file.term == nullptr) {
    return absl::InvalidArgumentError("no term has begun");
  }
  ELASTICDL_ASSIGN_OR_RETURN(const int64_t number, Number(line, "entry"));
  ServerLine read;
  if (line.contains("gets") || line.contains("gives")) {
    const char* name = line.contains("gets") ? "gets" : "gives";
    read.kind = line.contains("gets") ? ServerLine::Kind::kGets
                                      : ServerLine::Kind::kGives;
    ELASTICDL_ASSIGN_OR_RETURN(read.buckets, Buckets(line, name));
  } else {
    ELASTICDL_RETURN_IF_ERROR(ReadPush(line, read));
  }
  if (!file.entries.empty() && number < file.entries.rbegin()->first) {
    findings_.push_back(absl::StrCat(file.name, ": entry ", number, " after ",
                                     file.entries.rbegin()->first));
  }
  Entry& entry = file.entries[number];
  entry.file = file.name;
  entry.lines.push_back(std::move(read));
  return absl::OkStatus();
}

void ServerHistory::EndTerm(File& file) {
  for (auto& [number, entry] : file.entries) {
    // emplace leaves an entry alone that is there.
    const auto [at, is_new] =
        file.term->entries.try_emplace(number, std::move(entry));
    if (!is_new && !(at->second.lines == entry.lines)) {
      findings_.push_back(absl::StrCat(file.name, ": entry ", number,
                                       " differs from that in ",
                                       at->second.file));
    }
  }
  file.entries.clear();
}

bool ServerHistory::HasBuckets(const std::map<int64_t, const Entry*>& entries) {
  std::set<int> here;
  for (const auto& [number, entry] : entries) {
    for (const ServerLine& line : entry->lines) {
      if (line.kind == ServerLine::Kind::kPush) continue;
      for (const int bucket : line.buckets) {
        if (line.kind == ServerLine::Kind::kGets) {
          here.insert(bucket);
        } else {
          here.erase(bucket);
        }
      }
    }
  }
  return !here.empty();
}

std::map<int64_t, std::vector<ServerHistory::Life>> ServerHistory::Lives(
    const Find& find) const {
  std::map<int64_t, std::vector<Life>> lives;
  for (const auto& [part, terms] : parts_) {
    std::map<int64_t, const Entry*> valid;
    const auto end_life = [&, part = part] {
      Life& life = lives[part].emplace_back();
      for (const auto& [number, entry] : valid) {
        for (const ServerLine& line : entry->lines) life.push_back(&line);
      }
      valid.clear();
    };
    for (const auto& [number, term] : terms) {
      if (term.begins < 0) {
        find(absl::StrCat("part ", part, ": no file says where term ", number,
                          " began"));
      } else if (term.begins == 0 && !valid.empty() && !HasBuckets(valid)) {
        end_life();
      } else {
        valid.erase(valid.lower_bound(term.begins), valid.end());
      }
      for (const auto& [at, entry] : term.entries) valid[at] = &entry;
    }
    end_life();
  }
  return lives;
}

}  // namespace elasticdl
