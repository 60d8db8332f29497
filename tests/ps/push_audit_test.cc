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
    auto audit = PushAudit::Open({path_, 3, "run"});
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
    for (const auto& line : Lines()) {
      if (line.contains("begin")) begins.push_back(line.at("begin"));
    }
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
  ASSERT_TRUE(audit->Begin(2, 5).ok());
  ASSERT_TRUE(audit->Write(5, Push(16), 8, {}).ok());
  ASSERT_TRUE(audit->Write(6, Push(24, /*stage=*/true), 8, {}).ok());
  v1::PsEntry commit;
  for (const int64_t begin : {32, 40}) {
    auto& ranges = *commit.mutable_commit()->add_pushes();
    ranges.set_shard("c");
    ranges.add_bounds(begin);
    ranges.add_bounds(begin + 8);
  }
  ASSERT_TRUE(audit->Write(7, commit, 9, {}).ok());
  // The server had it; buckets that came later had not.
  ASSERT_TRUE(audit->Write(8, Push(48), 9, {true, {7, 9}}).ok());
  // The other way round.
  ASSERT_TRUE(audit->Write(9, Push(56), 10, {false, {7}}).ok());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0].dump(), R"({"begins":5,"run":"run","server":3,"term":2})");
  EXPECT_EQ(lines[1].dump(),
            R"({"begin":16,"end":24,"entry":5,"epoch":2,"server":3,)"
            R"("shard":"a \"b\"","version":8})");
  EXPECT_EQ(lines[2].at("version"), 9);
  EXPECT_EQ(lines[3].at("begin"), 40);
  EXPECT_EQ(lines[4].at("catch_up"), true);
  EXPECT_THAT(lines[4].at("buckets"), ElementsAre(7, 9));
  EXPECT_FALSE(lines[5].contains("catch_up"));
  EXPECT_THAT(lines[5].at("but"), ElementsAre(7));
}

TEST_F(PushAuditTest, BucketsComeAndGo) {
  const auto audit = Open();
  ASSERT_TRUE(audit->Begin(0, 0).ok());
  v1::PsEntry entry;
  entry.mutable_map()->set_version(1);
  ASSERT_TRUE(audit->Write(0, entry, 0, {false, {1, 2}}).ok());
  entry.mutable_map()->set_version(2);
  entry.mutable_map()->set_moves(true);
  ASSERT_TRUE(audit->Write(1, entry, 0, {false, {2}}).ok());
  entry.mutable_map()->set_version(3);
  ASSERT_TRUE(audit->Write(2, entry, 0, {}).ok());
  entry.mutable_import()->set_bucket(5);
  entry.mutable_import()->set_map_version(3);
  ASSERT_TRUE(audit->Write(3, entry, 0, {}).ok());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].dump(), R"({"entry":0,"gets":[1,2],"map":1,"server":3})");
  EXPECT_EQ(lines[2].dump(), R"({"entry":1,"gives":[2],"map":2,"server":3})");
  EXPECT_EQ(lines[3].dump(), R"({"entry":3,"gets":[5],"map":3,"server":3})");
}

// A term may begin before the last entry that was written.
TEST_F(PushAuditTest, Terms) {
  auto audit = Open();
  ASSERT_TRUE(audit->Begin(1, 0).ok());
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(audit->Write(i, Push(i * 8), i + 1, {}).ok());
  }
  ASSERT_TRUE(audit->Follow(2, 1).ok());
  ASSERT_TRUE(audit->Write(1, Push(80), 2, {}).ok());
  audit = Open();
  // Of the same term; written already, and not yet.
  ASSERT_TRUE(audit->Write(1, Push(80), 2, {}).ok());
  ASSERT_TRUE(audit->Write(2, Push(88), 3, {}).ok());
  ASSERT_TRUE(audit->Begin(3, 3).ok());
  EXPECT_THAT(Begins(), ElementsAre(0, 8, 16, 80, 88));
  const auto lines = Lines();
  EXPECT_EQ(lines[4].dump(),
            R"({"follows":1,"run":"run","server":3,"term":2})");
  EXPECT_EQ(lines.back().at("begins"), 3);
  // Another run.
  ASSERT_TRUE(PushAudit::Open({path_, 3, "other"}).ok());
  EXPECT_TRUE(Lines().empty());
}

TEST_F(PushAuditTest, WhatIsAppliedAgainIsNotWrittenAgain) {
  auto audit = Open();
  ASSERT_TRUE(audit->Write(0, Push(0), 1, {}).ok());
  ASSERT_TRUE(audit->Write(1, Push(8), 2, {}).ok());
  audit = Open();
  // The last one was logged, but not audited.
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(audit->Write(i, Push(i * 8), i + 1, {}).ok());
  }
  EXPECT_THAT(Begins(), ElementsAre(0, 8, 16));
}

TEST_F(PushAuditTest, HalfALineIsDropped) {
  ASSERT_TRUE(Open()->Write(0, Push(0), 1, {}).ok());
  Append("{\"server\":3,\"ep");
  const auto audit = Open();
  ASSERT_TRUE(audit->Write(0, Push(0), 1, {}).ok());
  ASSERT_TRUE(audit->Write(1, Push(8), 2, {}).ok());
  EXPECT_THAT(Begins(), ElementsAre(0, 8));
}

TEST_F(PushAuditTest, AnotherFileIsLeftAlone) {
  ASSERT_TRUE(WriteFileAtomic(path_, "my notes\n").ok());
  const auto audit = PushAudit::Open({path_, 3, "run"});
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
                             const ServerState& now) {
        return audit->Write(number, entry, now.version(), now.effect());
      };
      auto opened = PushLog::Open(options, {0, 0}, *state);
      ASSERT_TRUE(opened.ok()) << opened.status();
      log = *std::move(opened);
    };
    start();
    const auto accept = [&](const EntryBytes& part, bool dies) {
      ASSERT_TRUE(state->Check(part.entry, part.payload).ok());
      ASSERT_TRUE(
          log->Append(part.entry.SerializeAsString(), part.payload).ok());
      if (dies) return start();
      ASSERT_TRUE(state->Apply(part.entry, part.payload).ok());
      ASSERT_TRUE(audit
                      ->Write(log->position() - 1, part.entry, state->version(),
                              state->effect())
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
    auto lines = Lines();
    // The beginning, and the first map.
    ASSERT_EQ(lines.size(), kPushes + 2);
    EXPECT_EQ(lines[1].at("gets").size(), kBuckets);
    lines.erase(lines.begin(), lines.begin() + 2);
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i].at("begin"), i * 64);
      EXPECT_EQ(lines[i].at("version"), i + 1);
      EXPECT_FALSE(lines[i].contains("catch_up"));
    }
  }
}

}  // namespace
}  // namespace elasticdl::ps
