#include "elasticdl/experiment/plan.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::experiment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

absl::StatusOr<std::string> NoFiles(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": no such file"));
}

absl::StatusOr<Plan> Parse(const std::string& text) {
  return ParsePlan("dir/p.yaml", text, NoFiles);
}

constexpr char kFull[] = R"(name: full
seed: 4
repeats: 3
seconds: 20
job: {model_zoo: zoo, batch: 32, shuffle: "false"}
matrix:
  workers: [1, 2]
  peer: [elasticdl, torchrun]
traces:
  - name: calm
  - name: random
    mtbf: [5s, 1m]
    shape: 0.7
  - name: hand
    events:
      - {at: 2s, kill: 1}
      - {step: 100, preempt: 2}
      - {at: 1s, stop: 1, for: 3s}
)";

TEST(PlanTest, ReadsEverything) {
  const auto plan = Parse(kFull);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->name, "full");
  EXPECT_EQ(plan->flags.at("minibatch_size"), "32");
  EXPECT_EQ(plan->flags.at("shuffle"), "false");
  ASSERT_THAT(plan->traces, SizeIs(4));
  EXPECT_TRUE(plan->traces[0].calm());
  EXPECT_EQ(plan->traces[1].name, "random-5s");
  EXPECT_EQ(plan->traces[2].mtbf, 60);
  EXPECT_EQ(plan->traces[2].shape, 0.7);
  EXPECT_THAT(plan->traces[3].actions, SizeIs(3));
}

TEST(PlanTest, RunsAreAllCellsInEachRound) {
  const auto plan = Parse(kFull);
  ASSERT_TRUE(plan.ok());
  const std::vector<experiment::Run> runs = ListRuns(*plan);
  ASSERT_THAT(runs, SizeIs(2 * 2 * 4 * 3));
  std::set<std::string> ids;
  for (size_t round = 0; round < 3; ++round) {
    std::set<std::string> labels;
    for (size_t i = 0; i < 16; ++i) {
      const experiment::Run& run = runs[round * 16 + i];
      EXPECT_EQ(run.repeat, static_cast<int64_t>(round));
      EXPECT_EQ(absl::StrCat(run.workers), run.settings.at("workers"));
      EXPECT_EQ(run.flags.count("peer"), 0u);
      labels.insert(run.Label());
      ids.insert(run.id);
    }
    EXPECT_THAT(labels, SizeIs(16));
  }
  EXPECT_THAT(ids, SizeIs(48));
}

TEST(PlanTest, RoundsHaveOtherOrdersAndCellsTheSameKills) {
  const auto plan = Parse(kFull);
  ASSERT_TRUE(plan.ok());
  const std::vector<experiment::Run> runs = ListRuns(*plan);
  std::vector<std::string> first, second;
  std::map<std::string, std::set<std::string>> traces;
  for (const experiment::Run& run : runs) {
    if (run.repeat == 0) first.push_back(run.Label());
    if (run.repeat == 1) second.push_back(run.Label());
    traces[absl::StrCat(run.settings.at("trace"), " ", run.repeat)].insert(
        TraceCsv(run.actions));
  }
  EXPECT_NE(first, second);
  for (const auto& [name, list] : traces) EXPECT_THAT(list, SizeIs(1)) << name;
  EXPECT_NE(traces.at("random-5s 0"), traces.at("random-5s 1"));
}

TEST(PlanTest, IdsStayUnlessTheRunChanges) {
  const auto plan = Parse(kFull);
  auto more = *plan;
  more.repeats = 5;
  auto other = *plan;
  other.seconds = 21;
  std::set<std::string> ids, more_ids, other_ids;
  for (const experiment::Run& run : ListRuns(*plan)) ids.insert(run.id);
  for (const experiment::Run& run : ListRuns(more)) more_ids.insert(run.id);
  for (const experiment::Run& run : ListRuns(other)) other_ids.insert(run.id);
  // More rounds add runs; what has been measured stays.
  EXPECT_TRUE(
      std::includes(more_ids.begin(), more_ids.end(), ids.begin(), ids.end()));
  for (const std::string& id : other_ids) EXPECT_EQ(ids.count(id), 0u);
}

TEST(PlanTest, SharedJobs) {
  const auto plan = Parse(R"(job: {model_zoo: zoo}
matrix: {policy: [elastic, gang]}
shared:
  slots: 6
  jobs:
    - {name: a, workers: 4}
    - {arrives: 2s, workers: 4, min_workers: 2, flags: {num_epochs: 2}}
  service:
    - {at: 1s, slots: 2}
)");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->name, "p");
  ASSERT_THAT(plan->sharing.jobs, SizeIs(2));
  EXPECT_EQ(plan->sharing.jobs[1].name, "job2");
  EXPECT_EQ(plan->sharing.jobs[1].flags.at("num_epochs"), "2");
  std::set<std::string> policies;
  for (const experiment::Run& run : ListRuns(*plan))
    policies.insert(run.policy);
  EXPECT_THAT(policies, ElementsAre("elastic", "gang"));
}

TEST(PlanTest, ReplaysAFileBesideThePlan) {
  std::string asked;
  const auto read = [&](const std::string& path) {
    asked = path;
    return absl::StatusOr<std::string>("time,action\n60,kill\n");
  };
  const std::string text =
      "job: {a: b}\ntraces: [{name: t, csv: t.csv, speed: 60}]\n";
  const auto plan = ParsePlan("dir/p.yaml", text, read);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(asked, "dir/t.csv");
  EXPECT_DOUBLE_EQ(plan->traces[0].actions[0].at, 1);
}

TEST(PlanTest, BadPlansGetOneLineThatNamesThePlace) {
  const struct {
    const char* text;
    const char* place;
    const char* message;
  } cases[] = {
      {"", "dir/p.yaml:1: ", "not a plan"},
      {"- a\n", "dir/p.yaml:1: ", "not a plan"},
      {"job: {a: b}\nmatrx: {}\n", "dir/p.yaml:2: ", "unknown 'matrx'"},
      {"seed: 1\n", "dir/p.yaml:1: ", "needs job"},
      {"job: {a: b}\nrepeats: none\n", "dir/p.yaml:2: ", "'none'"},
      {"job: {a: b}\nrepeats: 0\n", "dir/p.yaml:2: ", "number from 1"},
      {"job: {a: b}\nmatrix:\n  workers: [1, 0]\n",
       "dir/p.yaml:3: ", "number from 1"},
      {"job: {a: b}\nmatrix:\n  workers: []\n",
       "dir/p.yaml:3: ", "must have a value"},
      {"job: {a: b}\nmatrix:\n  peer: [horovod]\n", "dir/p.yaml:3: ",
       "unknown peer 'horovod'; known: elasticdl torchrun mpirun"},
      {"job: {a: b}\nmatrix:\n  batch: [1, 1]\n", "dir/p.yaml:3: ", "twice"},
      {"job: {a: b}\nmatrix:\n  policy: [gang]\n",
       "dir/p.yaml:3: ", "policy needs shared"},
      {"job: {a: b}\ntraces:\n  - {mtbf: 3s}\n",
       "dir/p.yaml:3: ", "needs a name"},
      {"job: {a: b}\ntraces:\n  - {name: a}\n  - {name: a}\n",
       "dir/p.yaml:4: ", "two traces are named a"},
      {"job: {a: b}\ntraces:\n  - name: a\n    mtbf: 0\n",
       "dir/p.yaml:4: ", "above 0"},
      {"job: {a: b}\ntraces:\n  - name: a\n    mtbf: 3s\n    shape: 0\n",
       "dir/p.yaml:5: ", "shape"},
      {"job: {a: b}\ntraces:\n  - name: a\n    csv: no.csv\n",
       "dir/p.yaml:4: ", "no.csv"},
      {"job: {a: b}\ntraces:\n  - name: a\n    events:\n      - {kill: 1}\n",
       "dir/p.yaml:5: ", "'at' or 'step'"},
      {"job: {a: b}\ntraces:\n  - name: a\n    events:\n      - {at: 1}\n",
       "dir/p.yaml:5: ", "one action"},
      {"job: {a: b}\ntraces:\n  - name: a\n    events:\n      - {at: 1, stop: "
       "1}\n",
       "dir/p.yaml:5: ", "for: 3s"},
      {"job: {a: b}\nshared:\n  slots: 2\n  jobs:\n    - {workers: 3}\n",
       "dir/p.yaml:5: ", "wants 3 of 2 slots"},
      {"job: {a: b}\nshared:\n  slots: 2\n", "dir/p.yaml:3: ", "list of jobs"},
      {"job: {a: [1]}\n", "dir/p.yaml:1: ", "one value"},
      {"job: {a: b\n", "dir/p.yaml:", ""},
      {"job: {a: b}\nrepeats: 99999999\n", "dir/p.yaml:1: ", "runs"},
  };
  for (const auto& one : cases) {
    const auto plan = Parse(one.text);
    ASSERT_FALSE(plan.ok()) << one.text;
    EXPECT_THAT(std::string(plan.status().message()),
                AllOf(StartsWith(one.place), HasSubstr(one.message)))
        << one.text;
    EXPECT_THAT(std::string(plan.status().message()),
                testing::Not(HasSubstr("\n")));
  }
}

TEST(PlanTest, RandomBytesAndCutPlansAreRefusedOrRead) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::string full = kFull;
  for (int i = 0; i < 3000; ++i) {
    std::string text = full.substr(0, random() % (full.size() + 1));
    for (uint64_t edits = random() % 4; edits > 0 && !text.empty(); --edits) {
      text[random() % text.size()] = static_cast<char>(random() % 96 + 32);
    }
    const auto plan = Parse(text);
    if (plan.ok()) {
      EXPECT_GE(ListRuns(*plan).size(), 1u);
    } else {
      EXPECT_THAT(std::string(plan.status().message()),
                  StartsWith("dir/p.yaml:"))
          << text;
    }
  }
}

}  // namespace
}  // namespace elasticdl::experiment
