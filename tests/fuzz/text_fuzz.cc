// CSV, text and IDX files.
#include "data_readers.h"
#include "elasticdl/data/csv.h"
#include "fuzz.h"

namespace elasticdl::data::internal {
namespace {

void ReadAll(absl::StatusOr<std::unique_ptr<DataReader>> reader) {
  if (!reader.ok()) return;
  const auto shards = (*reader)->CreateShards();
  if (!shards.ok()) return;
  for (const Shard& shard : *shards) {
    ELASTICDL_CHECK(shard.begin <= shard.end);
    const auto batch = (*reader)->Read(shard.name, shard.begin, shard.end);
    if (!batch.ok()) continue;
    ELASTICDL_CHECK(batch->records().size() ==
                    static_cast<size_t>(shard.end - shard.begin));
    for (const absl::string_view record : batch->records()) {
      static_cast<void>(ParseCsvRecord(record).ok());
    }
  }
}

void Run(absl::string_view bytes) {
  const auto fields = ParseCsvRecord(bytes);
  // What is no field has no way back.
  if (fields.ok()) {
    const auto again = ParseCsvRecord(FormatCsvRecord(*fields));
    ELASTICDL_CHECK(again.ok() && *again == *fields);
  }
  const fuzz::MemoryFile file(bytes);
  for (const bool csv : {true, false}) {
    TextOptions options;
    options.csv = csv;
    ReadAll(OpenTextReader("fuzz", {file.path()}, options));
  }
  ReadAll(OpenIdxReader(file.path(), "", /*raw=*/true));
  ReadAll(OpenIdxReader(file.path(), file.path(), /*raw=*/false));
}

}  // namespace
}  // namespace elasticdl::data::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  elasticdl::data::internal::Run(elasticdl::fuzz::ToText(data, size));
  return 0;
}
