// What a server says it has applied: each entry once, whenever it dies.
#include "push_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "model.h"
#include "push_log.h"
#include "support/temp_dir.h"

namespace elasticdl::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::PsEntry Push(int64_t begin, bool stage = false) {
  v1::PsEntry entry;
  entry.mutable_push()->set_shard("a \"b\"");
  entry.mutable_push()->set_epoch(2);
  entry.mutable_push()->set_begin(begin);
  entry.mutable_push()->set_end(begin + 8);
  entry.mutable_push()->set_stage(stage);
  return entry;
}

class PushAuditTest : public testing::Test {
 protected:
  std::unique_ptr<PushAudit> Open() {
    auto audit = PushAudit::Open(path_, 3);
    EXPECT_TRUE(audit.ok()) << audit.status();
    return *std::move(audit);
  }
  std::vector<nlohmann::json> Lines() {
    std::vector<nlohmann::json> lines;
    const std::string text = *ReadFile(path_);
    for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  std::vector<int64_t> Begins() {
    std::vector<int64_t> begins;
    for (const auto& line : Lines()) begins.push_back(line.at("begin"));
    return begins;
  }
  void Append(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(path_, *ReadFile(path_) + text).ok());
  }

  test::TempDir dir_;
  const std::string path_ = dir_.Path("audit.3");
};

TEST_F(PushAuditTest, ALinePerPush) {
  const auto audit = Open();
  ASSERT_TRUE(audit->Write(5, Push(16), 7, 8).ok());
  ASSERT_TRUE(audit->Write(6, Push(24, /*stage=*/true), 8, 8).ok());
  v1::PsEntry commit;
  for (const int64_t begin : {32, 40}) {
    auto& ranges = *commit.mutable_commit()->add_pushes();
    ranges.set_shard("c");
    ranges.add_bounds(begin);
    ranges.add_bounds(begin + 8);
  }
  ASSERT_TRUE(audit->Write(7, commit, 8, 9).ok());
  ASSERT_TRUE(audit->Write(8, Push(48), 9, 9).ok());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].dump(),
            R"({"begin":16,"end":24,"entry":5,"epoch":2,"server":3,)"
            R"("shard":"a \"b\"","version":8})");
  EXPECT_EQ(lines[1].at("version"), 9);
  EXPECT_EQ(lines[2].at("begin"), 40);
  // The server had it; buckets that came later had not.
  EXPECT_EQ(lines[3].at("catch_up"), true);
}

TEST_F(PushAuditTest, WhatIsAppliedAgainIsNotWrittenAgain) {
  auto audit = Open();
  ASSERT_TRUE(audit->Write(0, Push(0), 0, 1).ok());
  ASSERT_TRUE(audit->Write(1, Push(8), 1, 2).ok());
  audit = Open();
  // The last one was logged, but not audited.
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(audit->Write(i, Push(i * 8), i, i + 1).ok());
  }
  EXPECT_THAT(Begins(), ElementsAre(0, 8, 16));
}

TEST_F(PushAuditTest, HalfALineIsDropped) {
  ASSERT_TRUE(Open()->Write(0, Push(0), 0, 1).ok());
  Append("{\"server\":3,\"ep");
  const auto audit = Open();
  ASSERT_TRUE(audit->Write(0, Push(0), 0, 1).ok());
  ASSERT_TRUE(audit->Write(1, Push(8), 1, 2).ok());
  EXPECT_THAT(Begins(), ElementsAre(0, 8));
  ASSERT_TRUE(audit->Clear().ok());
  ASSERT_TRUE(audit->Write(0, Push(64), 0, 1).ok());
  EXPECT_THAT(Begins(), ElementsAre(64));
}

TEST_F(PushAuditTest, AnotherFileIsLeftAlone) {
  ASSERT_TRUE(WriteFileAtomic(path_, "my notes\n").ok());
  const auto audit = PushAudit::Open(path_, 3);
  EXPECT_THAT(std::string(audit.status().message()),
              HasSubstr("is another kind of file"));
  EXPECT_EQ(*ReadFile(path_), "my notes\n");
}

// With a log: the process ends between log and audit, or anywhere else.
TEST_F(PushAuditTest, RandomSchedules) {
  const v1::PsDefinition definition = TestDefinition("SGD");
  const BucketMap map = BucketMap::Even(1);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    ASSERT_TRUE(RemoveTree(dir_.Path("log")).ok());
    ASSERT_TRUE(WriteFileAtomic(path_, "").ok());
    std::unique_ptr<ServerState> state;
    std::unique_ptr<PushAudit> audit;
    std::unique_ptr<PushLog> log;
    const auto start = [&] {
      log.reset();
      audit = Open();
      state = std::make_unique<ServerState>(ServerState::Options{0, 0});
      PushLog::Options options;
      options.dir = dir_.Path("log");
      options.replayed = [&](int64_t number, const v1::PsEntry& entry,
                             int64_t before, int64_t after) {
        return audit->Write(number, entry, before, after);
      };
      auto opened = PushLog::Open(options, {0, 0}, *state);
      ASSERT_TRUE(opened.ok()) << opened.status();
      log = *std::move(opened);
    };
    start();
    const auto accept = [&](const EntryBytes& part, bool dies) {
      const int64_t before = state->version();
      ASSERT_TRUE(state->Check(part.entry, part.payload).ok());
      ASSERT_TRUE(
          log->Append(part.entry.SerializeAsString(), part.payload).ok());
      if (dies) return start();
      ASSERT_TRUE(state->Apply(part.entry, part.payload).ok());
      ASSERT_TRUE(
          audit
              ->Write(log->position() - 1, part.entry, before, state->version())
              .ok());
    };
    v1::PsEntry entry;
    *entry.mutable_definition() = definition;
    accept({entry, ""}, false);
    *entry.mutable_map() = ToProto(map);
    accept({entry, ""}, false);
    accept(InitialPart(definition, map, 0), false);
    constexpr int64_t kPushes = 20;
    for (int64_t i = 0; i < kPushes; ++i) {
      const Gradient gradient = RandomGradient(definition, i, random);
      accept(PartOf(gradient, definition, map, 0), random() % 4 == 0);
      if (random() % 6 == 0) start();
      if (HasFatalFailure()) return;
    }
    const auto lines = Lines();
    ASSERT_EQ(lines.size(), kPushes);
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i].at("begin"), i * 64);
      EXPECT_EQ(lines[i].at("version"), i + 1);
      EXPECT_FALSE(lines[i].contains("catch_up"));
    }
  }
}

}  // namespace
}  // namespace elasticdl::ps
