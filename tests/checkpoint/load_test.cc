// Loading to given places, by several readers, and reading heads only.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "checkpoint/memory_dir.h"
#include "checkpoint/test_snapshot.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::checkpoint {
namespace {

using test::ExpectSame;
using test::MemoryDir;
using test::MustSave;
using test::TestSnapshot;
using ::testing::HasSubstr;

// Two files of several chunks, the last ones not full.
constexpr size_t kLargeFloats = (21 << 20) / sizeof(float) + 3;

// A bit of a file, in place: its size and name stay.
void Flip(const std::string& file, int64_t offset) {
  FILE* const stream = fopen(file.c_str(), "r+b");
  ASSERT_NE(stream, nullptr) << file;
  fseek(stream, static_cast<long>(offset), SEEK_SET);
  const int byte = fgetc(stream);
  fseek(stream, static_cast<long>(offset), SEEK_SET);
  fputc(byte ^ 1, stream);
  fclose(stream);
}

int64_t FileBytes(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

// What read() has returned to this process so far.
int64_t BytesRead() {
  const auto text = ReadFile("/proc/self/io");
  int64_t bytes = -1;
  for (const absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ": ");
    if (parts[0] != "rchar") continue;
    EXPECT_TRUE(absl::SimpleAtoi(parts[1], &bytes));
  }
  return bytes;
}

// Memory for all tensors but one, as a model has it.
class Model {
 public:
  absl::Status Place(Loaded& loaded) {
    for (std::vector<NamedTensor>* tensors :
         {&loaded.variables, &loaded.slots}) {
      for (NamedTensor& tensor : *tensors) {
        EXPECT_EQ(tensor.bytes.data(), nullptr) << tensor.name;
        if (tensor.name == "fc2/weight") continue;
        std::string& bytes = memory_[tensor.name];
        bytes.assign(tensor.bytes.size(), '?');
        tensor.bytes = absl::MakeConstSpan(bytes);
      }
    }
    return absl::OkStatus();
  }
  const std::string& at(const std::string& name) { return memory_.at(name); }

 private:
  std::map<std::string, std::string> memory_;
};

TEST(LoadTest, TensorsAreReadToWhereTheyAreWanted) {
  const MemoryDir dir;
  const TestSnapshot snapshot(3, kLargeFloats);
  const std::string path = MustSave(dir.path(), snapshot.get());
  Model model;
  LoadOptions options;
  options.place = [&](Loaded& loaded) { return model.Place(loaded); };
  const auto loaded = Load(path, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, snapshot.get());
  const NamedTensor* const weight = loaded->FindVariable("fc1/weight");
  EXPECT_EQ(weight->bytes.data(), model.at("fc1/weight").data());
  EXPECT_EQ(loaded->FindSlot("fc1/bias", "m")->bytes.data(),
            model.at("fc1/bias/m").data());
  EXPECT_EQ(loaded->num_files, 3);
}

TEST(LoadTest, APlaceOfAnotherSizeIsAnError) {
  const MemoryDir dir;
  const std::string path = MustSave(dir.path(), TestSnapshot(3).get());
  std::string small(8, '?');
  LoadOptions options;
  options.place = [&](Loaded& loaded) {
    loaded.variables[0].bytes = absl::MakeConstSpan(small);
    return absl::OkStatus();
  };
  EXPECT_EQ(Load(path, options).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(small, "????????");
}

TEST(LoadTest, EveryByteIsReadOnce) {
  if (BytesRead() < 0) GTEST_SKIP() << "no /proc/self/io";
  const MemoryDir dir;
  const TestSnapshot snapshot(3, kLargeFloats);
  const std::string path = MustSave(dir.path(), snapshot.get());
  const int64_t total = FileBytes(path);
  const int64_t before = BytesRead();
  ASSERT_TRUE(Load(path).ok());
  const int64_t loaded = BytesRead() - before;
  EXPECT_GE(loaded, total);
  EXPECT_LT(loaded, total + (256 << 10));
  // Without the tensors.
  const int64_t between = BytesRead();
  ASSERT_TRUE(FindHead(dir.path()).ok());
  EXPECT_LT(BytesRead() - between, 64 << 10);
}

TEST(LoadTest, DamageIsFoundInEveryChunk) {
  const MemoryDir dir;
  const TestSnapshot snapshot(3, kLargeFloats);
  const std::string path = MustSave(dir.path(), snapshot.get());
  for (const char* name : {"variables-0-of-1.ckpt", "optimizer-0-of-1.ckpt"}) {
    const std::string file = JoinPath(path, name);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
    for (int64_t at = 1000; at < size; at += (3 << 20) + 17) {
      SCOPED_TRACE(at);
      Flip(file, at);
      for (const absl::Status& status : {Load(path).status(), Verify(path)}) {
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(file + ": checksum differs"));
      }
      Flip(file, at);
    }
  }
  EXPECT_TRUE(Verify(path).ok());
  ExpectSame(*Load(path), snapshot.get());
}

// Names are used before all bytes are read.
TEST(LoadTest, ADamagedNameIsDamage) {
  const MemoryDir dir;
  const std::string path = MustSave(dir.path(), TestSnapshot(3).get());
  const std::string file = JoinPath(path, "variables-0-of-1.ckpt");
  const auto at = static_cast<int64_t>(ReadFile(file)->find("fc1/weight"));
  Flip(file, at);
  LoadOptions options;
  options.place = [](Loaded& loaded) -> absl::Status {
    if (loaded.FindVariable("fc1/weight") != nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError("of another model");
  };
  const absl::Status status = Load(path, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  // An intact one of another model is what it is.
  Flip(file, at);
  options.place = [](Loaded&) {
    return absl::FailedPreconditionError("of another model");
  };
  EXPECT_EQ(Load(path, options).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(LoadTest, AModelAloneNeedsNoStateOfTheOptimizer) {
  const MemoryDir dir;
  TestSnapshot snapshot(3);
  const std::string path = MustSave(dir.path(), snapshot.get());
  Flip(JoinPath(path, "optimizer-0-of-1.ckpt"), 100);
  LoadOptions options;
  options.only_model = true;
  const auto loaded = Load(path, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  snapshot.get().slots.clear();
  ExpectSame(*loaded, snapshot.get());
  EXPECT_EQ(loaded->num_files, 2);
}

TEST(LoadTest, OthersReadWhileTheCallerTellsHowFarItIs) {
  const MemoryDir dir;
  const std::string path =
      MustSave(dir.path(), TestSnapshot(3, kLargeFloats).get());
  std::vector<int64_t> told;
  int64_t total = 0;
  LoadOptions options;
  options.progress = [&](int64_t bytes, int64_t all) {
    told.push_back(bytes);
    total = all;
    return absl::OkStatus();
  };
  ASSERT_TRUE(Load(path, options).ok());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), total);
  options.progress = [&](int64_t, int64_t) {
    return absl::AbortedError("enough");
  };
  EXPECT_EQ(Load(path, options).status(), absl::AbortedError("enough"));
}

TEST(LoadTest, LoadResolvedSkipsWhatIsDamaged) {
  const MemoryDir dir;
  const TestSnapshot good(5);
  MustSave(dir.path(), good.get());
  const std::string bad = MustSave(dir.path(), TestSnapshot(9).get());
  Flip(JoinPath(bad, "variables-0-of-1.ckpt"), 300);
  const auto loaded = LoadResolved(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, good.get());
  EXPECT_EQ(LoadResolved(bad).status().code(), absl::StatusCode::kDataLoss);
}

// ---- heads ----

TEST(HeadTest, TheLedgerOfAVersion) {
  const MemoryDir dir;
  TestSnapshot snapshot(120);
  snapshot.get().lineage = {"run", 7};
  const std::string path = MustSave(dir.path(), snapshot.get());
  const auto head = ReadHead(path);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->version, 120);
  EXPECT_EQ(head->lineage.generation, 7);
  ASSERT_TRUE(head->ledger.has_value());
  EXPECT_EQ(head->ledger->committed_records(), 120 * 64);
  TestSnapshot bare(121);
  bare.get().ledger.reset();
  EXPECT_FALSE(ReadHead(MustSave(dir.path(), bare.get()))->ledger.has_value());
}

TEST(HeadTest, WhatIsCheckedAndWhatIsNot) {
  const MemoryDir dir;
  const std::string path = MustSave(dir.path(), TestSnapshot(120).get());
  // Only who reads the tensors finds this.
  const std::string tensors = JoinPath(path, "variables-0-of-1.ckpt");
  Flip(tensors, 300);
  EXPECT_TRUE(ReadHead(path).ok());
  EXPECT_FALSE(Verify(path).ok());
  Flip(tensors, 300);
  const std::string ledger = JoinPath(path, "ledger.pb");
  Flip(ledger, 1);
  absl::Status status = ReadHead(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(ledger));
  Flip(ledger, 1);
  std::filesystem::resize_file(tensors, 10);
  status = ReadHead(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 10 bytes"));
  std::filesystem::remove(tensors);
  EXPECT_EQ(ReadHead(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(HeadTest, TheNewestBelowAVersion) {
  const MemoryDir dir;
  for (const int64_t version : {5, 40, 300}) {
    MustSave(dir.path(), TestSnapshot(version).get());
  }
  Flip(dir.Path("version-40/ledger.pb"), 1);
  EXPECT_EQ(FindHead(dir.path())->version, 300);
  EXPECT_EQ(FindHead(dir.path() + "/", 300)->version, 5);
  EXPECT_EQ(FindHead(dir.path(), 5).status().code(),
            absl::StatusCode::kNotFound);
  // A folder that is named has no others.
  EXPECT_EQ(FindHead(dir.Path("version-300"))->version, 300);
  EXPECT_EQ(FindHead(dir.Path("version-300"), 300).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace elasticdl::checkpoint
