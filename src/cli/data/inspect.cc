// `elasticdl data info`, `head` and `verify`.
#include "elasticdl/data/inspect.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/data_commands.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/data/example.h"
#include "elasticdl/data/reader.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::cli {
namespace {

constexpr size_t kShownBytes = 200;

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<uint8_t>(c) >= 0x80 || absl::ascii_isprint(c) ||
           absl::ascii_isspace(c);
  });
}

// A tf.Example by its features, text as it is, other bytes escaped.
std::string Show(absl::string_view record, size_t max_values) {
  const auto example = data::ExampleView::Parse(record);
  if (example.ok() && !example->features().empty()) {
    return example->DebugString(max_values);
  }
  if (IsPrintable(record)) return std::string(record);
  return absl::StrCat("\"", absl::CHexEscape(record.substr(0, kShownBytes)),
                      record.size() > kShownBytes ? "\"…" : "\"", " (",
                      record.size(), " bytes)");
}

absl::Status PrintInfo(const std::string& origin) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto paths, data::ListRecordIoFiles(origin));
  data::FileSummary sum;
  absl::Status damage;
  std::cout << absl::StrFormat("%10s %8s %10s  %-11s %-8s %s\n", "records",
                               "chunks", "bytes", "compressor", "variant",
                               "file");
  for (const std::string& path : paths) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto file, data::SummarizeFile(path));
    const bool go = file.variant == data::RecordIoVariant::kGo;
    std::cout << absl::StrFormat(
        "%10d %8d %10s  %-11s %-8s %s%s\n", file.records, file.chunks,
        FormatBytes(static_cast<double>(file.bytes)), file.compressor,
        go ? "recordio" : "python", path,
        file.damage.ok() ? "" : "  DAMAGED AFTER THIS");
    sum.records += file.records;
    sum.chunks += file.chunks;
    sum.bytes += file.bytes;
    if (damage.ok()) damage = file.damage;
  }
  std::cout << absl::StrCat(Count(sum.records, "record"), " in ",
                            Count(static_cast<int64_t>(paths.size()), "file"),
                            ", ", Count(sum.chunks, "chunk"), ", ",
                            Count(static_cast<int64_t>(sum.bytes), "byte"),
                            "\n");
  return damage;
}

// Prints the first `left` records of a shard's range, counting down.
absl::Status PrintRecords(data::DataReader& reader, const data::Shard& shard,
                          size_t max_values, int64_t& left) {
  for (int64_t i = shard.begin; i < shard.end && left > 0; ++i, --left) {
    ELASTICDL_ASSIGN_OR_RETURN(const auto batch,
                               reader.Read(shard.name, i, i + 1));
    std::cout << Show(batch.records()[0], max_values) << "\n";
  }
  return absl::OkStatus();
}

absl::Status PrintHead(const std::string& origin, int64_t count,
                       size_t max_values) {
  ELASTICDL_ASSIGN_OR_RETURN(const auto reader,
                             data::OpenDataReader(origin, {}));
  ELASTICDL_ASSIGN_OR_RETURN(const auto shards, reader->CreateShards());
  for (const data::Shard& shard : shards) {
    ELASTICDL_RETURN_IF_ERROR(PrintRecords(*reader, shard, max_values, count));
  }
  return absl::OkStatus();
}

}  // namespace

int RunDataInfo(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  flags::FlagSet flags("elasticdl data info",
                       "Count what RecordIO files hold.");
  flags.AddPositional("PATH", &paths, 1, "File or folder", 1);
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  const absl::Status status = PrintInfo(paths[0]);
  return status.ok() ? 0 : DataFailed(status);
}

int RunDataHead(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  int64_t count = 5;
  int64_t values = 8;
  flags::FlagSet flags("elasticdl data head",
                       "Show the first records of a data set.");
  flags.AddPositional("PATH", &paths, 1,
                      "File, folder or synthetic:records=N,...", 1);
  flags.Add("num_records", &count,
            flags::Info("Options", "How many records (also -n).").Min(0));
  flags.Add("num_values", &values,
            flags::Info("Options", "How many values of each feature.").Min(0));
  std::vector<std::string> long_args = args;
  for (std::string& arg : long_args) {
    if (arg == "-n") {
      arg = "--num_records";
    } else if (absl::StartsWith(arg, "-n") && arg.size() > 2) {
      arg = absl::StrCat("--num_records=", arg.substr(2));
    }
  }
  if (const int code = flags.ParseOrExitCode(long_args); code >= 0) return code;
  const absl::Status status =
      PrintHead(paths[0], count, static_cast<size_t>(values));
  return status.ok() ? 0 : DataFailed(status);
}

int RunDataVerify(const std::vector<std::string>& args) {
  std::vector<std::string> paths;
  flags::FlagSet flags(
      "elasticdl data verify",
      "Read every chunk of RecordIO files; exit code 1 and the place "
      "if one is bad.");
  flags.AddPositional("PATH", &paths, 1, "File or folder", 1);
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  ProgressBar bar("verifying", "files");
  const auto result = data::VerifyRecordIo(
      paths[0],
      [&bar](int64_t done, int64_t total) { bar.Update(done, total); });
  bar.Finish();
  if (!result.ok()) return DataFailed(result.status());
  for (const absl::Status& problem : result->problems) DataFailed(problem);
  std::cout << absl::StrCat(
      Count(result->files, "file"), ", ", Count(result->chunks, "chunk"), ", ",
      Count(result->records, "record"), " sound, ",
      Count(static_cast<int64_t>(result->problems.size()), "problem"), "\n");
  return result->problems.empty() ? 0 : 1;
}

}  // namespace elasticdl::cli
