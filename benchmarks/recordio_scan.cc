// Measures scanning of RecordIO files in the page cache: uncompressed in GB/s,
// and with snappy compared with snappy's own decompression of the same blocks.
// Rounds are interleaved; medians are reported.
//
//   recordio_scan [rounds] [megabytes] [folder]
//
// The records are synthetic, or those of a folder of RecordIO files, repeated.
#include <snappy.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/data/inspect.h"
#include "elasticdl/data/recordio.h"

namespace {

using elasticdl::data::Compressor;
using elasticdl::data::RecordIoFile;
using elasticdl::data::RecordIoScanner;
using elasticdl::data::RecordIoWriter;

constexpr size_t kBlockBytes = 65536;
// The size of an MNIST record: 784 floats and a label.
constexpr size_t kRecordBytes = 3164;

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "recordio_scan: %s\n", status.ToString().c_str());
  exit(1);
}

uint32_t NextRandom(uint64_t& state) {
  state = state * 6364136223846793005 + 1442695040888963407;
  return static_cast<uint32_t>(state >> 33);
}

// Floats as in images: runs of zeros and runs of grey values.
std::string MakeRecord(uint64_t& state) {
  std::string record(kRecordBytes, '\0');
  for (size_t at = 0; at + 4 < record.size();) {
    const size_t run = 4 * (1 + NextRandom(state) % 24);
    const bool grey = NextRandom(state) % 3 == 0;
    for (size_t i = 0; i < run && at + 4 < record.size(); i += 4, at += 4) {
      const auto value = static_cast<float>(grey ? NextRandom(state) % 256 : 0);
      std::memcpy(&record[at], &value, sizeof(value));
    }
  }
  return record;
}

std::vector<std::string> MakeRecords(size_t bytes) {
  uint64_t state = 1;
  std::vector<std::string> records(bytes / kRecordBytes);
  for (std::string& record : records) record = MakeRecord(state);
  return records;
}

std::vector<std::string> LoadRecords(const std::string& folder, size_t bytes) {
  auto paths = elasticdl::data::ListRecordIoFiles(folder);
  if (!paths.ok()) Die(paths.status());
  std::vector<std::string> records;
  size_t loaded = 0;
  for (size_t i = 0; loaded < bytes; i = (i + 1) % paths->size()) {
    auto file = RecordIoFile::Open((*paths)[i]);
    if (!file.ok()) Die(file.status());
    RecordIoScanner scanner(*file);
    while (scanner.Next()) {
      records.emplace_back(scanner.record());
      loaded += records.back().size();
    }
    if (!scanner.status().ok()) Die(scanner.status());
  }
  return records;
}

void WriteFile(const std::string& path, Compressor compressor,
               uint64_t chunk_bytes, const std::vector<std::string>& records) {
  auto writer = RecordIoWriter::Create(path, {compressor, chunk_bytes});
  if (!writer.ok()) Die(writer.status());
  for (const std::string& record : records) {
    if (auto status = (*writer)->Write(record); !status.ok()) Die(status);
  }
  if (auto status = (*writer)->Close(); !status.ok()) Die(status);
}

// Opens, verifies and touches every record; returns the record bytes.
uint64_t Scan(const std::string& path) {
  auto file = RecordIoFile::Open(path);
  if (!file.ok()) Die(file.status());
  RecordIoScanner scanner(*file);
  uint64_t bytes = 0;
  uint64_t touched = 0;
  while (scanner.Next()) {
    bytes += scanner.record().size();
    touched += static_cast<uint8_t>(scanner.record().back());
  }
  if (!scanner.status().ok()) Die(scanner.status());
  asm volatile("" : : "r"(touched));
  return bytes;
}

// The payload as 64 KiB blocks, each compressed with plain snappy.
std::vector<std::string> CompressBlocks(
    const std::vector<std::string>& records) {
  std::string payload;
  for (const std::string& record : records) {
    const auto length = static_cast<uint32_t>(record.size());
    payload.append(reinterpret_cast<const char*>(&length), sizeof(length));
    payload += record;
  }
  std::vector<std::string> blocks;
  for (size_t at = 0; at < payload.size(); at += kBlockBytes) {
    blocks.emplace_back();
    const size_t size = std::min(kBlockBytes, payload.size() - at);
    snappy::Compress(payload.data() + at, size, &blocks.back());
  }
  return blocks;
}

// Decompresses into a buffer of the size of a chunk, as a chunk reader would.
uint64_t PlainSnappy(const std::vector<std::string>& blocks,
                     std::vector<char>& out) {
  uint64_t bytes = 0;
  size_t at = 0;
  for (const std::string& block : blocks) {
    size_t size = 0;
    if (at + kBlockBytes > out.size()) at = 0;
    if (!snappy::GetUncompressedLength(block.data(), block.size(), &size) ||
        !snappy::RawUncompress(block.data(), block.size(), &out[at])) {
      Die(absl::InternalError("snappy failed"));
    }
    at += size;
    bytes += size;
  }
  return bytes;
}

double GigabytesPerSecond(const std::function<uint64_t()>& run) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t bytes = run();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / seconds.count() / 1e9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintRow(const char* name, const std::vector<double>& values,
              const char* unit) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::printf("%-44s %8.2f %-5s (%.2f to %.2f)\n", name, Median(values), unit,
              *low, *high);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = std::max(5, argc > 1 ? atoi(argv[1]) : 9);
  const size_t megabytes = argc > 2 ? std::max(1, atoi(argv[2])) : 256;
  char folder[] = "/tmp/recordio-scan-XXXXXX";
  if (mkdtemp(folder) == nullptr) Die(absl::InternalError("no folder"));
  const std::vector<std::string> records =
      argc > 3 ? LoadRecords(argv[3], megabytes * 1000000)
               : MakeRecords(megabytes * 1000000);
  const std::string plain = std::string(folder) + "/none";
  const std::string small = std::string(folder) + "/snappy-1m";
  const std::string large = std::string(folder) + "/snappy-32m";
  WriteFile(plain, Compressor::kNone, 1 << 20, records);
  WriteFile(small, Compressor::kSnappy, 1 << 20, records);
  WriteFile(large, Compressor::kSnappy, 32 << 20, records);
  const std::vector<std::string> blocks = CompressBlocks(records);
  std::vector<char> out((1 << 20) + kBlockBytes);

  std::vector<double> none, snappy_1m, snappy_32m, alone, ratio_1m, ratio_32m;
  for (int round = -1; round < rounds; ++round) {
    const double a = GigabytesPerSecond([&] { return Scan(plain); });
    const double b = GigabytesPerSecond([&] { return Scan(small); });
    const double c =
        GigabytesPerSecond([&] { return PlainSnappy(blocks, out); });
    const double d = GigabytesPerSecond([&] { return Scan(large); });
    if (round < 0) continue;  // warms the cache
    none.push_back(a);
    snappy_1m.push_back(b);
    alone.push_back(c);
    snappy_32m.push_back(d);
    ratio_1m.push_back(b / c);
    ratio_32m.push_back(d / c);
  }
  std::printf("%zu records, %zu MB, %d rounds: median (min to max)\n",
              records.size(), megabytes, rounds);
  PrintRow("scan, no compressor", none, "GB/s");
  PrintRow("scan, snappy, 1 MiB chunks", snappy_1m, "GB/s");
  PrintRow("scan, snappy, 32 MiB chunks", snappy_32m, "GB/s");
  PrintRow("snappy alone, the same 64 KiB blocks", alone, "GB/s");
  PrintRow("snappy scan / snappy alone, 1 MiB chunks", ratio_1m, "x");
  PrintRow("snappy scan / snappy alone, 32 MiB chunks", ratio_32m, "x");
  elasticdl::RemoveTree(folder).IgnoreError();
  const bool reached = Median(none) >= 1.0 && Median(ratio_1m) >= 0.8;
  std::printf("target (>= 1 GB/s, >= 0.80 x): %s\n",
              reached ? "reached" : "MISSED");
  return reached ? 0 : 1;
}
