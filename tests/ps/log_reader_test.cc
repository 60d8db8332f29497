// The log of a server, read while it grows.
#include "log_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "log_frame.h"
#include "push_log.h"
#include "server_state.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

class LogReaderTest : public testing::Test {
 protected:
  LogReaderTest() {
    auto log = PushLog::Open({dir_.Path("log")}, {0, 0}, state_);
    EXPECT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }
  void Append(size_t bytes) {
    ASSERT_TRUE(log_->Append("header", std::string(bytes, 'x')).ok());
  }
  // The numbers of the entries that come next: "0 1 2 ".
  static std::string Read(LogReader& reader, int64_t end, size_t most) {
    Buffer frames;
    const absl::Status read = reader.ReadEntries(end, most, frames);
    if (!read.ok()) return std::string(read.message());
    std::string numbers;
    absl::string_view rest = frames.view();
    while (!rest.empty()) {
      Frame frame;
      if (ParseFrame(rest, frame) != FrameResult::kOk) return "a bad frame";
      numbers += std::to_string(frame.number) + " ";
      rest.remove_prefix(frame.whole.size());
    }
    return numbers;
  }

  test::TempDir dir_;
  ServerState state_{ServerState::Options{0, 0}};
  std::unique_ptr<PushLog> log_;
};

TEST_F(LogReaderTest, GivesWholeFramesUpToTheEnd) {
  auto reader = LogReader::Open(dir_.Path("log"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Read(*reader, 0, 1000), "");
  for (int i = 0; i < 10; ++i) Append(100);
  // What is behind the end is not looked at, whatever was read.
  EXPECT_EQ(Read(*reader, 2, 1000), "0 1 ");
  // A frame has 144 bytes; the last one is cut off.
  EXPECT_EQ(Read(*reader, 10, 500), "2 3 4 ");
  EXPECT_EQ(reader->position(), 5);
  // One at least, however long it is.
  EXPECT_EQ(Read(*reader, 10, 10), "5 ");
  EXPECT_EQ(Read(*reader, 10, 100), "6 ");
  EXPECT_EQ(Read(*reader, 10, 1000), "7 8 9 ");
  EXPECT_EQ(Read(*reader, 10, 1000), "");
}

TEST_F(LogReaderTest, SkipsWhatOthersHaveSent) {
  auto reader = LogReader::Open(dir_.Path("log"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  Append(100);
  // It could be in another file than the one before.
  EXPECT_FALSE(log_->last_head().has_value());
  EXPECT_EQ(Read(*reader, 1, 1000), "0 ");
  Append(200);
  ASSERT_TRUE(log_->last_head().has_value());
  reader->Skip(log_->last_head()->FrameBytes());
  Append(300);
  EXPECT_EQ(Read(*reader, 3, 1000), "2 ");
}

TEST_F(LogReaderTest, GoesOnInTheNextFile) {
  auto reader = LogReader::Open(dir_.Path("log"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  Append(100);
  Append(100);
  EXPECT_EQ(Read(*reader, 2, 1000), "0 1 ");
  ASSERT_TRUE(log_->BeginSnapshot(state_).ok());
  Append(100);
  EXPECT_FALSE(log_->last_head().has_value());
  Append(100);
  EXPECT_EQ(Read(*reader, 4, 1000), "2 3 ");
}

TEST_F(LogReaderTest, NoticesALogThatBecameShorter) {
  auto reader = LogReader::Open(dir_.Path("log"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  Append(100);
  Append(100);
  ASSERT_EQ(truncate(dir_.Path("log/log-0").c_str(), 200), 0);
  EXPECT_EQ(Read(*reader, 2, 1000), "0 ");
  EXPECT_EQ(Read(*reader, 2, 1000), "the log became shorter");
}

}  // namespace
}  // namespace elasticdl::ps
