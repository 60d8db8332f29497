// TensorBoard's event files, read back by a decoder that shares nothing with
// the writer.
#include "tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "support/temp_dir.h"

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

absl::Time At(double seconds) {
  return absl::FromUnixSeconds(1700000000) + absl::Seconds(seconds);
}

// Bit by bit, as the polynomial is written down.
uint32_t SlowMaskedCrc(const std::string& data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

uint64_t Number(const std::string& bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  }
  return value;
}

// The data of all records; their checksums must fit.
std::vector<std::string> Records(const std::string& file) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < file.size()) {
    const std::string length = file.substr(at, 8);
    EXPECT_EQ(Number(file.substr(at + 8, 4)), SlowMaskedCrc(length));
    const std::string data = file.substr(at + 12, Number(length));
    EXPECT_EQ(data.size(), Number(length));
    at += 12 + data.size();
    EXPECT_EQ(Number(file.substr(at, 4)), SlowMaskedCrc(data));
    at += 4;
    records.push_back(data);
  }
  return records;
}

// Field number -> its raw values: bytes, or the 8/4 bytes of a fixed one, or
// the 8 bytes of a varint.
std::multimap<uint64_t, std::string> Fields(const std::string& message) {
  std::multimap<uint64_t, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(message[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    size_t size = key % 8 == 1 ? 8 : 4;
    if (key % 8 == 2) size = varint();
    if (key % 8 == 0) {
      const uint64_t value = varint();
      fields.emplace(key / 8, std::string(reinterpret_cast<const char*>(&value),
                                          sizeof(value)));
      continue;
    }
    fields.emplace(key / 8, message.substr(at, size));
    at += size;
  }
  return fields;
}

template <typename T>
T As(const std::string& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::vector<double> Doubles(const std::string& packed) {
  std::vector<double> values;
  EXPECT_EQ(packed.size() % 8, 0u);
  for (size_t at = 0; at + 8 <= packed.size(); at += 8) {
    values.push_back(As<double>(packed.substr(at, 8)));
  }
  return values;
}

// A tf.HistogramProto: "[min max num sum squares](limits)(counts)".
std::string ShowHistogram(const std::string& bytes) {
  const auto fields = Fields(bytes);
  std::vector<double> numbers;
  for (uint64_t field = 1; field <= 5; ++field) {
    EXPECT_EQ(fields.count(field), 1u) << field;
    numbers.push_back(As<double>(fields.find(field)->second));
  }
  EXPECT_EQ(fields.size(), 7u);
  return absl::StrCat("[", absl::StrJoin(numbers, " "), "](",
                      absl::StrJoin(Doubles(fields.find(6)->second), " "), ")(",
                      absl::StrJoin(Doubles(fields.find(7)->second), " "), ")");
}

// "3: train/loss=0.5 …", "start 3", "version brain.Event:2".
std::string Show(const std::string& record) {
  const auto event = Fields(record);
  EXPECT_NEAR(As<double>(event.find(1)->second), 1.7e9, 1000);
  const auto step = As<int64_t>(event.find(2)->second);
  if (event.count(3) != 0) return "version " + event.find(3)->second;
  if (event.count(7) != 0) {
    EXPECT_EQ(As<int64_t>(Fields(event.find(7)->second).find(1)->second), 1);
    return absl::StrCat("start ", step);
  }
  std::string text = absl::StrCat(step, ":");
  const auto summary = Fields(event.find(5)->second);
  for (auto [it, end] = summary.equal_range(1); it != end; ++it) {
    const auto value = Fields(it->second);
    if (value.count(8) != 0) {
      // A tensor of one string for the plugin "text".
      const auto tensor = Fields(value.find(8)->second);
      EXPECT_EQ(As<int64_t>(tensor.find(1)->second), 7);
      EXPECT_EQ(tensor.find(2)->second, "");
      const auto metadata = Fields(value.find(9)->second);
      EXPECT_EQ(Fields(metadata.find(1)->second).find(1)->second, "text");
      absl::StrAppend(&text, " ", value.find(1)->second, "=",
                      tensor.find(8)->second);
      continue;
    }
    if (value.count(5) != 0) {
      absl::StrAppend(&text, " ", value.find(1)->second, "=",
                      ShowHistogram(value.find(5)->second));
      continue;
    }
    absl::StrAppend(&text, " ", value.find(1)->second, "=",
                    As<float>(value.find(2)->second));
  }
  return text;
}

class TensorBoardTest : public ::testing::Test {
 protected:
  std::unique_ptr<TensorBoard> Open() {
    auto board = TensorBoard::Open(dir_.Path("tb"), "j", At(0));
    EXPECT_TRUE(board.ok()) << board.status();
    return *std::move(board);
  }
  std::vector<std::string> Events() {
    const auto names = ListDirectory(dir_.Path("tb/j"));
    EXPECT_THAT(*names, SizeIs(1));
    EXPECT_TRUE(
        absl::StartsWith(names->at(0), "events.out.tfevents.1700000000."))
        << names->at(0);
    std::vector<std::string> shown;
    for (const std::string& record :
         Records(*ReadFile(dir_.Path("tb/j/" + names->at(0))))) {
      shown.push_back(Show(record));
    }
    return shown;
  }

  test::TempDir dir_;
};

TEST_F(TensorBoardTest, CurvesReadBack) {
  const auto board = Open();
  EXPECT_TRUE(board->Training({1, 0.5, 0.01, 250}, At(1)).ok());
  EXPECT_TRUE(board->Training({300, 0.25, 0.02, 500}, At(2)).ok());
  // Another worker reports the same step, and one an earlier.
  EXPECT_TRUE(board->Training({300, 0.75, 0.02, 500}, At(2.5)).ok());
  EXPECT_TRUE(board->Training({299, 0.75, 0.02, 500}, At(2.7)).ok());
  EXPECT_TRUE(
      board->Evaluation(300, {{"accuracy", 0.75}, {"auc", 0.5}}, At(3)).ok());
  EXPECT_THAT(Events(),
              ElementsAre("version brain.Event:2", "start 1",
                          "1: train/loss=0.5 train/learning_rate=0.01 "
                          "train/records_per_s=250",
                          "300: train/loss=0.25 train/learning_rate=0.02 "
                          "train/records_per_s=500",
                          "300: evaluation/accuracy=0.75 evaluation/auc=0.5"));
}

TEST_F(TensorBoardTest, TextReadsBack) {
  const auto board = Open();
  EXPECT_TRUE(board->Text("configuration", "    --a=b\n", At(1)).ok());
  EXPECT_THAT(Events(), ElementsAre("version brain.Event:2",
                                    "0: configuration=    --a=b\n"));
}

v1::Histogram SomeHistogram(const std::string& name) {
  v1::Histogram histogram;
  histogram.set_name(name);
  histogram.set_min(-1);
  histogram.set_max(3);
  histogram.set_num(4);
  histogram.set_sum(5);
  histogram.set_sum_squares(15);
  for (const double limit : {1.0, 3.0}) histogram.add_limits(limit);
  for (const double count : {1.0, 3.0}) histogram.add_counts(count);
  return histogram;
}

TEST_F(TensorBoardTest, HistogramsReadBack) {
  const auto board = Open();
  v1::Histograms histograms;
  histograms.set_step(20);
  *histograms.add_weights() = SomeHistogram("fc.weight");
  *histograms.add_gradients() = SomeHistogram("fc.weight");
  EXPECT_TRUE(board->Histograms(histograms, At(1)).ok());
  const std::string shown = "[-1 3 4 5 15](1 3)(1 3)";
  EXPECT_THAT(Events(), ElementsAre("version brain.Event:2", "start 20",
                                    "20: weights/fc.weight=" + shown +
                                        " gradients/fc.weight=" + shown));
}

// What TensorFlow's own library writes for the same histogram, byte by byte:
// fields 1 to 5 as doubles, 6 and 7 as packed doubles.
TEST_F(TensorBoardTest, AHistogramHasTheBytesOfTheFormat) {
  const auto board = Open();
  v1::Histograms histograms;
  histograms.set_step(1);
  *histograms.add_weights() = SomeHistogram("w");
  EXPECT_TRUE(board->Histograms(histograms, At(1)).ok());
  const auto names = ListDirectory(dir_.Path("tb/j"));
  const auto records = Records(*ReadFile(dir_.Path("tb/j/" + names->at(0))));
  const auto field = [](char tag, double value) {
    std::string bytes(1, tag);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return bytes;
  };
  const auto packed = [](char tag, std::vector<double> values) {
    std::string bytes = {tag, static_cast<char>(8 * values.size())};
    bytes.append(reinterpret_cast<const char*>(values.data()),
                 8 * values.size());
    return bytes;
  };
  const std::string histo = field(0x09, -1) + field(0x11, 3) + field(0x19, 4) +
                            field(0x21, 5) + field(0x29, 15) +
                            packed(0x32, {1, 3}) + packed(0x3a, {1, 3});
  const std::string value = std::string("\x0a\x09weights/w\x2a") +
                            static_cast<char>(histo.size()) + histo;
  const std::string summary =
      std::string("\x0a") + static_cast<char>(value.size()) + value;
  EXPECT_EQ(Fields(records.back()).find(5)->second, summary);
}

TEST_F(TensorBoardTest, HistogramsThatMakeNoSenseAreLeftOut) {
  const auto board = Open();
  v1::Histograms histograms;
  histograms.set_step(7);
  histograms.add_weights()->set_name("nothing");
  *histograms.add_weights() = SomeHistogram("odd");
  histograms.mutable_weights(1)->add_counts(1);
  *histograms.add_weights() = SomeHistogram("unsorted");
  histograms.mutable_weights(2)->set_limits(0, 9);
  EXPECT_TRUE(board->Histograms(histograms, At(1)).ok());
  EXPECT_THAT(Events(), ElementsAre("version brain.Event:2"));
  *histograms.add_weights() = SomeHistogram("\xff/a");
  EXPECT_TRUE(board->Histograms(histograms, At(2)).ok());
  EXPECT_THAT(Events().back(), HasSubstr("7: weights/\\xff/a=["));
  // The step is done again by another world.
  const size_t written = Events().size();
  EXPECT_TRUE(board->Histograms(histograms, At(3)).ok());
  EXPECT_THAT(Events(), SizeIs(written));
}

TEST_F(TensorBoardTest, FastJobsWriteTenPointsASecondAndTheLast) {
  const auto board = Open();
  for (int64_t step = 1; step <= 1000; ++step) {
    EXPECT_TRUE(board
                    ->Training({step, 1, 1, 1},
                               At(1 + static_cast<double>(step) / 1000))
                    .ok());
  }
  EXPECT_TRUE(board->Finish(At(3)).ok());
  EXPECT_TRUE(board->Finish(At(4)).ok());
  const auto events = Events();
  EXPECT_THAT(events, SizeIs(2 + 10 + 1));
  EXPECT_THAT(events.back(), HasSubstr("1000: "));
}

TEST_F(TensorBoardTest, PointsThatTheModelLostAreVoid) {
  const auto board = Open();
  EXPECT_TRUE(board->Training({10, 1, 1, 1}, At(1)).ok());
  EXPECT_TRUE(board->Training({20, 1, 1, 1}, At(2)).ok());
  EXPECT_TRUE(board->Training({21, 1, 1, 1}, At(2.01)).ok());  // left out
  EXPECT_TRUE(board->CutBack(15, At(3)).ok());
  EXPECT_TRUE(board->CutBack(15, At(3)).ok());
  EXPECT_TRUE(board->Finish(At(4)).ok());
  EXPECT_TRUE(board->Evaluation(16, {{"m", 1}}, At(4)).ok());
  EXPECT_TRUE(board->Training({16, 1, 1, 1}, At(5)).ok());
  const auto events = Events();
  ASSERT_THAT(events, SizeIs(7));
  EXPECT_EQ(events[4], "start 16");
  EXPECT_EQ(events[5], "16: evaluation/m=1");
}

TEST_F(TensorBoardTest, NothingWithoutAFolderAndAClearErrorForABadOne) {
  const auto none = TensorBoard::Open("", "j", At(0));
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE((*none)->Training({1, 1, 1, 1}, At(1)).ok());
  EXPECT_TRUE((*none)->CutBack(0, At(1)).ok());
  EXPECT_TRUE((*none)->Finish(At(1)).ok());
  const auto bad = TensorBoard::Open("/dev/null", "j", At(0));
  EXPECT_THAT(std::string(bad.status().message()),
              HasSubstr("--tensorboard_log_dir"));
}

}  // namespace
}  // namespace elasticdl::master
