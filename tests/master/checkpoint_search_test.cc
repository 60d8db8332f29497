// What a lost model is restored from, and that looking for it holds up nobody.
#include "checkpoint_search.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/queue.h"

namespace elasticdl::master {
namespace {

// Only a failing test waits that long.
constexpr absl::Duration kPatience = absl::Seconds(20);

class CheckpointSearchTest : public ::testing::Test {
 protected:
  CheckpointSearchTest() : history_("run", -1) {
    history_.SetLineage(1);
    store_.list = [this] { return on_disk_; };
    store_.load_ledger =
        [this](const std::string& path) -> absl::StatusOr<v1::Ledger> {
      loaded_.push_back(path);
      if (path == damaged_) return absl::DataLossError("bad checksum");
      v1::Ledger ledger;
      ledger.set_step(std::stoll(path));
      return ledger;
    };
  }
  checkpoint::Version Save(int64_t step, const std::string& run = "run") {
    on_disk_.push_back({step, absl::StrCat(step), {run, 1}});
    return on_disk_.back();
  }
  CheckpointAnswer Search(int64_t step, bool at_base = false) {
    return *SearchCheckpoint(store_, {history_, step, at_base});
  }

  CheckpointHistory history_;
  CheckpointStore store_;
  std::vector<checkpoint::Version> on_disk_;
  std::string damaged_;
  std::vector<std::string> loaded_;
};

TEST_F(CheckpointSearchTest, FindsTheNewestThatIsWhole) {
  Save(10);
  Save(30);
  Save(20);
  Save(25, "another");
  damaged_ = "30";
  const CheckpointAnswer answer = Search(35);
  ASSERT_TRUE(answer.version.has_value());
  EXPECT_EQ(answer.version->version, 20);
  EXPECT_EQ(answer.ledger.step(), 20);
  EXPECT_FALSE(answer.keeps_base);
  EXPECT_EQ(loaded_, (std::vector<std::string>{"30", "20"}));
}

TEST_F(CheckpointSearchTest, NoneIsNewerThanTheModelWas) {
  Save(10);
  Save(30);
  EXPECT_EQ(Search(29).version->version, 10);
  EXPECT_FALSE(Search(9).version.has_value());
}

TEST_F(CheckpointSearchTest, TheBaseOnlyHasToBeThere) {
  const checkpoint::Version base = Save(10);
  history_.FallBack(&base);
  EXPECT_TRUE(Search(10, /*at_base=*/true).keeps_base);
  EXPECT_TRUE(loaded_.empty()) << "it was read again";
  on_disk_.clear();
  const CheckpointAnswer gone = Search(10, /*at_base=*/true);
  EXPECT_FALSE(gone.keeps_base);
  EXPECT_FALSE(gone.version.has_value());
}

TEST_F(CheckpointSearchTest, AnotherStartIsTheLastResort) {
  int64_t asked = -1;
  store_.older_start = [&](int64_t below) -> absl::StatusOr<checkpoint::Head> {
    asked = below;
    checkpoint::Head head;
    head.version = 3;
    return head;
  };
  CheckpointQuery query{history_, 15};
  EXPECT_FALSE(SearchCheckpoint(store_, query)->start.ok());
  EXPECT_EQ(asked, -1);
  query.bad_start = 5;
  const auto answer = SearchCheckpoint(store_, query);
  EXPECT_EQ(asked, 5);
  ASSERT_TRUE(answer->start.ok());
  EXPECT_EQ(answer->start->version, 3);
  // Not there, or not to be read: only the first is an answer.
  store_.older_start = [](int64_t) { return absl::NotFoundError("none"); };
  EXPECT_TRUE(
      absl::IsNotFound(SearchCheckpoint(store_, query)->start.status()));
  store_.older_start = [](int64_t) { return absl::UnavailableError("nfs"); };
  EXPECT_TRUE(absl::IsUnavailable(SearchCheckpoint(store_, query).status()));
  Save(10);
  EXPECT_EQ(SearchCheckpoint(store_, query)->version->version, 10);
}

// To go back to the start of the job would abandon checkpoints that are intact.
TEST_F(CheckpointSearchTest, ADiskThatCannotBeReadIsAnError) {
  Save(10);
  store_.list = []() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    return absl::InternalError("stale file handle");
  };
  EXPECT_TRUE(
      absl::IsInternal(SearchCheckpoint(store_, {history_, 15}).status()));
  store_.list = [this]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    return on_disk_;
  };
  store_.load_ledger = [](const std::string&) -> absl::StatusOr<v1::Ledger> {
    return absl::UnavailableError("no answer");
  };
  EXPECT_TRUE(
      absl::IsUnavailable(SearchCheckpoint(store_, {history_, 15}).status()));
}

TEST_F(CheckpointSearchTest, ADirectoryMayBeMissingBeforeTheFirstSave) {
  store_.list = []() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    return absl::NotFoundError("no such directory");
  };
  EXPECT_FALSE(Search(15).version.has_value());
  ASSERT_TRUE(history_.Report(1, 10, ""));
  EXPECT_TRUE(
      absl::IsNotFound(SearchCheckpoint(store_, {history_, 15}).status()));
}

TEST_F(CheckpointSearchTest, ADiskThatComesBackIsReadAgain) {
  Save(10);
  int tries = 0;
  store_.list = [&]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    if (++tries < 3) return absl::InternalError("stale file handle");
    return on_disk_;
  };
  Queue<CheckpointAnswer> answers(10);
  const auto take = [&](CheckpointAnswer answer) {
    answers.Push(std::move(answer));
  };
  CheckpointSearcher searcher(store_, take, {kPatience, absl::Milliseconds(1)});
  searcher.Search({history_, 15, false});
  const auto answer = answers.Pop(kPatience);
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->error.ok());
  EXPECT_EQ(answer->version->version, 10);
  // One that stays away is given up in the end.
  tries = -1000000;
  CheckpointSearcher hasty(store_, take,
                           {absl::ZeroDuration(), absl::Milliseconds(1)});
  hasty.Search({history_, 15, false});
  const auto failed = answers.Pop(kPatience);
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(absl::IsInternal(failed->error));
}

TEST_F(CheckpointSearchTest, ASlowDiskHoldsUpOnlyTheSearch) {
  Save(10);
  Queue<int> reading(10);
  Queue<int> may_go_on(10);
  store_.list = [&]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    reading.Push(1);
    EXPECT_TRUE(may_go_on.Pop(kPatience).has_value());
    return on_disk_;
  };
  Queue<CheckpointAnswer> answers(10);
  CheckpointSearcher searcher(store_, [&](CheckpointAnswer answer) {
    answers.Push(std::move(answer));
  });
  // Both calls return although the disk does not.
  searcher.Search({history_, 15, false});
  searcher.Search({history_, 5, false});
  ASSERT_TRUE(reading.Pop(kPatience).has_value());
  EXPECT_EQ(answers.size(), 0u);
  may_go_on.Push(1);
  may_go_on.Push(1);
  const auto first = answers.Pop(kPatience);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->version->version, 10);
  const auto second = answers.Pop(kPatience);
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->version.has_value());
}

TEST_F(CheckpointSearchTest, AStoppedSearcherAnswersNoMore) {
  Queue<int> reading(10);
  Queue<int> may_go_on(10);
  store_.list = [&]() -> absl::StatusOr<std::vector<checkpoint::Version>> {
    reading.Push(1);
    EXPECT_TRUE(may_go_on.Pop(kPatience).has_value());
    return on_disk_;
  };
  Queue<CheckpointAnswer> answers(10);
  {
    CheckpointSearcher searcher(store_, [&](CheckpointAnswer answer) {
      answers.Push(std::move(answer));
    });
    searcher.Search({history_, 15, false});
    ASSERT_TRUE(reading.Pop(kPatience).has_value());
    searcher.Stop();
    may_go_on.Push(1);
  }
  EXPECT_EQ(answers.size(), 0u);
}

}  // namespace
}  // namespace elasticdl::master
