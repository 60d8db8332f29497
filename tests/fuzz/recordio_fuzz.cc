// A RecordIO file of a stranger: opening and scanning it ends with its records
// or an error.
#include "elasticdl/data/recordio.h"
#include "fuzz.h"

namespace elasticdl::data {
namespace {

int64_t Scan(const std::string& path, bool salvage) {
  RecordIoFile::Options options;
  options.salvage = salvage;
  const auto file = RecordIoFile::Open(path, options);
  if (!file.ok()) return -1;
  int64_t records = 0;
  volatile char last = 0;
  RecordIoScanner scanner(*file);
  while (scanner.Next()) {
    ++records;
    for (const char c : scanner.record()) last = c;
  }
  static_cast<void>(last);
  if (scanner.status().ok()) ELASTICDL_CHECK(records == (*file)->num_records());
  return records;
}

}  // namespace
}  // namespace elasticdl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const elasticdl::fuzz::MemoryFile file(elasticdl::fuzz::ToText(data, size));
  const int64_t strict = elasticdl::data::Scan(file.path(), false);
  const int64_t salvaged = elasticdl::data::Scan(file.path(), true);
  // Salvage never gives less.
  ELASTICDL_CHECK(salvaged >= strict);
  return 0;
}
