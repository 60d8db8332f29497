// Proves from an audit (--ledger_audit) that each record of each epoch was
// committed exactly once. Shares no code with the programs it checks.
//
//   ledger_check AUDIT --epochs=N --shard=NAME:BEGIN:END...
//                [--set_aside=EPOCH:NAME:BEGIN:END...] [--partial]
//                [--ps_audit=FILE...]
//
// A line {"cut_back": S} makes void every earlier line of a step above S.
// --set_aside: these records must not be there at all. --partial: records may
// be missing (training stopped early), but none may be there twice. --ps_audit:
// what one parameter server has applied, once for each file; each record that
// was committed must be in each bucket exactly once, and (unless --partial) no
// other (ps_audit_check.h). Exit code 0 when all is well, 1 with one line per
// finding, 2 for a bad call.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/ledger_counts.h"
#include "support/ps_audit_check.h"

namespace elasticdl::test {
namespace {

struct Line {
  int64_t epoch;
  std::string shard;
  int64_t begin;
  int64_t end;
  int64_t step;
};

struct Range {
  int64_t epoch = 0;
  std::string shard;
  int64_t begin = 0;
  int64_t end = 0;
};

struct Arguments {
  std::string audit;
  int64_t epochs = 1;
  std::vector<Range> shards;
  std::vector<Range> set_aside;
  std::vector<std::string> ps_audits;
  bool partial = false;
};

// NAME:BEGIN:END; the name may hold colons itself.
Range ParseRange(const std::string& text) {
  const size_t last = text.rfind(':');
  const size_t middle = text.rfind(':', last - 1);
  if (last == std::string::npos || middle == std::string::npos) {
    throw std::invalid_argument("'" + text + "' is no NAME:BEGIN:END");
  }
  Range range;
  range.shard = text.substr(0, middle);
  range.begin = std::stoll(text.substr(middle + 1, last - middle - 1));
  range.end = std::stoll(text.substr(last + 1));
  return range;
}

Arguments ParseArguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::string value = text.substr(text.find('=') + 1);
    if (text.rfind("--epochs=", 0) == 0) {
      arguments.epochs = std::stoll(value);
    } else if (text.rfind("--shard=", 0) == 0) {
      arguments.shards.push_back(ParseRange(value));
    } else if (text.rfind("--set_aside=", 0) == 0) {
      const size_t colon = value.find(':');
      Range range = ParseRange(value.substr(colon + 1));
      range.epoch = std::stoll(value.substr(0, colon));
      arguments.set_aside.push_back(range);
    } else if (text.rfind("--ps_audit=", 0) == 0) {
      arguments.ps_audits.push_back(value);
    } else if (text == "--partial") {
      arguments.partial = true;
    } else if (text.rfind("--", 0) != 0 && arguments.audit.empty()) {
      arguments.audit = text;
    } else {
      throw std::invalid_argument("unknown argument " + text);
    }
  }
  if (arguments.audit.empty() || arguments.shards.empty()) {
    throw std::invalid_argument("AUDIT and --shard are wanted");
  }
  return arguments;
}

// What is valid after all cut-backs.
std::vector<Line> ReadAudit(const std::string& path, Findings& findings) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Line> lines;
  std::string text;
  while (std::getline(file, text)) {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.contains("cut_back")) {
      const int64_t step = json.at("cut_back");
      std::vector<Line> kept;
      for (Line& line : lines) {
        if (line.step <= step) kept.push_back(std::move(line));
      }
      lines = std::move(kept);
      continue;
    }
    lines.push_back({json.at("epoch"), json.at("shard"), json.at("begin"),
                     json.at("end"), json.at("step")});
    if (!json.at("worker_id").is_number_integer() ||
        !json.at("generation").is_number_integer()) {
      findings.Add("a line without worker_id or generation: ", text);
    }
  }
  return lines;
}

Counts Expected(const Arguments& arguments) {
  Counts counts;
  for (int64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    for (const Range& shard : arguments.shards) {
      for (int64_t i = shard.begin; i < shard.end; ++i) {
        counts[{epoch, shard.shard}][i] = {1, 0};
      }
    }
  }
  for (const Range& range : arguments.set_aside) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      counts[{range.epoch, range.shard}][i].first = 0;
    }
  }
  return counts;
}

void Count(const std::vector<Line>& lines, Counts& counts, Findings& findings) {
  for (const Line& line : lines) {
    if (line.begin >= line.end)
      findings.Add("an empty range at step ", line.step);
    const auto shard = counts.find({line.epoch, line.shard});
    if (shard == counts.end()) {
      findings.Add("epoch ", line.epoch, " of shard ", line.shard,
                   " is unknown");
      continue;
    }
    for (int64_t i = line.begin; i < line.end; ++i) {
      const auto record = shard->second.find(i);
      if (record == shard->second.end()) {
        findings.Add("record ", i, " of ", line.shard, " is not in the shard");
      } else {
        ++record->second.second;
      }
    }
  }
}

int64_t Compare(const Counts& counts, bool partial, Findings& findings) {
  int64_t total = 0;
  for (const auto& [shard, records] : counts) {
    for (const auto& [record, count] : records) {
      const auto [expected, found] = count;
      total += found;
      if (found == expected || (partial && found < expected)) continue;
      findings.Add("record ", record, " of ", shard.second, " in epoch ",
                   shard.first, " was committed ", found, " times instead of ",
                   expected);
    }
  }
  return total;
}

int Check(int argc, char** argv) {
  try {
    const Arguments arguments = ParseArguments(argc, argv);
    Findings findings;
    Counts counts = Expected(arguments);
    Count(ReadAudit(arguments.audit, findings), counts, findings);
    const int64_t total = Compare(counts, arguments.partial, findings);
    PsAuditCheck servers(findings);
    for (const std::string& path : arguments.ps_audits) servers.Read(path);
    if (!arguments.ps_audits.empty()) {
      servers.Compare(counts, arguments.partial);
    }
    std::cout << findings.count() << " findings, " << total
              << " records committed\n";
    return findings.count() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cout << "ledger_check: " << error.what() << "\n";
    return 2;
  }
}

}  // namespace
}  // namespace elasticdl::test

int main(int argc, char** argv) { return elasticdl::test::Check(argc, argv); }
