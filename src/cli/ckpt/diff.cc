// `elasticdl ckpt diff`.
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckpt/ckpt.h"
#include "ckpt/compare.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"
#include "nlohmann/json.hpp"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ToText(const Difference& difference) {
  std::string line = difference.kind;
  if (!difference.name.empty()) absl::StrAppend(&line, " ", difference.name);
  absl::StrAppend(&line, ": ");
  if (difference.only_in != 0) {
    return absl::StrCat(line, "only in the ",
                        difference.only_in == 1 ? "first" : "second");
  }
  if (difference.first != difference.second) {
    return absl::StrCat(line, difference.first, " | ", difference.second);
  }
  if (difference.rows_only_in_first > 0 || difference.rows_only_in_second > 0) {
    absl::StrAppend(&line, difference.rows_only_in_first,
                    " rows only in the first, ", difference.rows_only_in_second,
                    " only in the second, ");
  }
  return absl::StrFormat("%smax difference %.9g", line,
                         difference.max_difference);
}

Json ToJson(const Difference& difference) {
  Json out = {{"kind", difference.kind}};
  if (!difference.name.empty()) out["name"] = difference.name;
  if (difference.only_in != 0) {
    out["only_in"] = difference.only_in == 1 ? "first" : "second";
  } else if (difference.first != difference.second) {
    out["first"] = difference.first;
    out["second"] = difference.second;
  } else {
    // JSON has no infinity: null.
    out["max_difference"] = difference.max_difference;
    if (difference.kind == "table") {
      out["rows_only_in_first"] = difference.rows_only_in_first;
      out["rows_only_in_second"] = difference.rows_only_in_second;
    }
  }
  return out;
}

}  // namespace

int RunCkptDiff(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  bool json = false;
  flags::FlagSet flags(
      "elasticdl ckpt diff",
      "Compare two checkpoints: step, optimizer, ledger and all values. The "
      "exit code is 0 if they are equal, 1 if they differ, 2 for errors.");
  flags.AddPositional("PATH", &paths, 2,
                      "Two version-N folders, or folders of them: the newest",
                      2);
  flags.Add("json", &json, flags::Info("Options", "Print JSON."));
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  const absl::StatusOr<checkpoint::Loaded> first =
      checkpoint::LoadResolved(paths[0]);
  if (!first.ok()) return CkptFailed(first.status());
  const absl::StatusOr<checkpoint::Loaded> second =
      checkpoint::LoadResolved(paths[1]);
  if (!second.ok()) return CkptFailed(second.status());
  const std::vector<Difference> differences = Compare(*first, *second);
  if (json) {
    Json out = {{"first", first->path},
                {"second", second->path},
                {"equal", differences.empty()},
                {"differences", Json::array()}};
    for (const Difference& difference : differences) {
      out["differences"].push_back(ToJson(difference));
    }
    // Names are bytes from files: never throw.
    std::cout << JsonText(out, 2) << "\n";
  } else {
    for (const Difference& difference : differences) {
      std::cout << ToText(difference) << "\n";
    }
    if (differences.empty()) std::cout << "equal\n";
  }
  return differences.empty() ? 0 : 1;
}

}  // namespace elasticdl::cli
