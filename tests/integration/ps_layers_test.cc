// Models with large layers of torch: their rows live on the servers, and they
// are whole again everywhere else.
#include <algorithm>

#include "integration/ps_chaos.h"

namespace elasticdl::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class PsLayersTest : public PsChaosTest {
 protected:
  static Flags Servers(int64_t servers, int64_t workers) {
    return {"--distribution_strategy=ParameterServerStrategy",
            absl::StrCat("--num_ps_pods=", servers),
            absl::StrCat("--num_workers=", workers)};
  }
  std::unique_ptr<Job> TrainLayers(const std::string& name, const Flags& more) {
    Flags flags = {"--model_def=layers.custom_model",
                   "--training_data=" + chaos_csv(),
                   "--validation_data=" + test_csv(),
                   "--minibatch_size=32",
                   "--num_epochs=2",
                   "--keep_checkpoint_max=0",
                   "--checkpoint_steps=10",
                   "--checkpoint_dir=" + Path(name),
                   "--output=" + Path(name + "-out")};
    flags.insert(flags.end(), more.begin(), more.end());
    return Train(name, flags);
  }
  // The rows of each table in a checkpoint.
  std::map<std::string, int64_t> RowsIn(const std::string& path) {
    const auto info =
        Run("info", {Program("elasticdl"), "ckpt", "info", "--json", path});
    EXPECT_EQ(info->Wait(), 0) << info->err();
    std::map<std::string, int64_t> rows;
    const Json json = Json::parse(info->out());
    for (const Json& table : json.at("tables")) {
      rows[table.at("name")] = table.at("rows");
    }
    return rows;
  }
  std::string From(const std::string& name, int64_t version) {
    return absl::StrCat("--checkpoint_dir_for_init=", Path(name), "/version-",
                        version);
  }
  std::string StateDict(const std::string& name) {
    return Contents(Path(name + "-out/state_dict.pt"));
  }
  double MseOf(Job& job) { return LastMetrics(job)["mse"]; }
};

// Local training, servers that begin with a checkpoint of it, and local
// training that begins with one of theirs: the same bits in the end, although a
// server dies.
TEST_F(PsLayersTest, SameAsOnOneMachineAndBack) {
  const auto local = TrainLayers(
      "local", {"--distribution_strategy=Local", "--num_workers=1"});
  ASSERT_EQ(local->Wait(), 0) << local->Output();
  const std::vector<int64_t> saved = Versions(Path("local"));
  ASSERT_EQ(saved.back(), 60);

  Flags flags = Servers(2, 1);
  flags.push_back(From("local", saved.front()));
  flags.push_back("--model_params=pace=" + pace());
  const auto servers = TrainLayers("servers", flags);
  ASSERT_TRUE(WaitForSteps(*servers, saved.front() + 4));
  Kill(*servers, "ps", 1);
  ASSERT_TRUE(WaitForSteps(*servers, saved.front() + 8));
  Go();
  ASSERT_EQ(servers->Wait(), 0) << servers->Output();
  EXPECT_THAT(servers->Log("0"),
              HasSubstr("the rows of 'users.weight' (2 MB) live on"));
  EXPECT_THAT(RowsIn(Path("servers")),
              ElementsAre(testing::Pair("users.weight", 20000),
                          testing::Pair("words.weight", 30000)));
  // Of the whole weights, as torch's.
  EXPECT_GT(StateDict("local").size(), (20000U * 32 + 30000 * 20) * 4);
  EXPECT_TRUE(StateDict("servers") == StateDict("local"));
  EXPECT_EQ(MseOf(*servers), MseOf(*local));

  const std::vector<int64_t> theirs = Versions(Path("servers"));
  const auto back =
      TrainLayers("back", {"--distribution_strategy=Local", "--num_workers=1",
                           From("servers", theirs.front())});
  ASSERT_EQ(back->Wait(), 0) << back->Output();
  const auto diff = Run("diff", {Program("elasticdl"), "ckpt", "diff",
                                 Path("local"), Path("back")});
  EXPECT_EQ(diff->Wait(), 0) << diff->out() << diff->err();
}

// The same with backups: a takeover changes no bit.
TEST_F(PsLayersTest, SameWithBackups) {
  const auto local = TrainLayers(
      "local", {"--distribution_strategy=Local", "--num_workers=1"});
  ASSERT_EQ(local->Wait(), 0) << local->Output();
  Flags flags = Servers(2, 1);
  flags.push_back(From("local", Versions(Path("local")).front()));
  flags.insert(flags.end(), {"--ps_backup=1", "--model_params=pace=" + pace()});
  const auto servers = TrainLayers("servers", flags);
  ASSERT_TRUE(servers->WaitUntil("current backups", [](const auto& events) {
    return std::count_if(events.begin(), events.end(), [](const Json& event) {
             return event.at("event") == "ps_backup_current";
           }) >= 2;
  })) << servers->Output();
  Kill(*servers, "ps", 1);
  ASSERT_TRUE(servers->WaitUntil("a takeover", [](const auto& events) {
    return std::any_of(events.begin(), events.end(), [](const Json& event) {
      return event.at("event") == "ps_takeover";
    });
  })) << servers->Output();
  Go();
  ASSERT_EQ(servers->Wait(), 0) << servers->Output();
  EXPECT_TRUE(StateDict("servers") == StateDict("local"));
}

// Rows of 16 bits, fewer than there are ids, with backups: the job goes on
// after a kill, and what it saves can be used elsewhere.
TEST_F(PsLayersTest, BoundedSmallRowsWithBackups) {
  Flags flags = Servers(2, 2);
  flags.insert(flags.end(),
               {"--use_async", "--ps_backup=1", "--embedding_max_rows=1024",
                "--embedding_dtype=bfloat16", "--model_params=pace=" + pace()});
  const auto job = TrainLayers("bounded", flags);
  ASSERT_TRUE(WaitForSteps(*job, 5));
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 15));
  Kill(*job, "ps", 1);
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, 2)) << job->Output();
  // A bucket has one row, and those of the push that came last.
  const int64_t most = 1024 + 2 * 32 * 3;
  EXPECT_LE(RowsIn(Path("bounded")).at("words.weight"), most);
  const auto next =
      TrainLayers("next", {"--distribution_strategy=Local", "--num_workers=1",
                           "--checkpoint_dir_for_init=" + Path("bounded")});
  ASSERT_EQ(next->Wait(), 0) << next->Output();
}

// Rows that nobody has touched are nowhere stored, and have their initial
// values wherever they are needed.
TEST_F(PsLayersTest, FromTheBeginning) {
  Flags flags = Servers(2, 2);
  flags.insert(flags.end(), {"--use_async", "--model_params=pace=" + pace()});
  const auto job = TrainLayers("async", flags);
  ASSERT_TRUE(WaitForSteps(*job, 5));
  Kill(*job, "ps", 0);
  ASSERT_TRUE(WaitForSteps(*job, 10));
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_TRUE(ChaosLedgerIsExact(*job, 2)) << job->Output();
  const std::map<std::string, int64_t> rows = RowsIn(Path("async"));
  // Of the 100 users of the data, one is the padding.
  EXPECT_EQ(rows.at("users.weight"), 99);
  EXPECT_LE(rows.at("words.weight"), kRecords * 3);
  const int64_t last = Versions(Path("async")).back();

  const auto evaluated = Evaluate(
      "evaluated", {"--model_def=layers.custom_model",
                    "--validation_data=" + test_csv(), From("async", last)});
  ASSERT_EQ(evaluated->Wait(), 0) << evaluated->Output();
  EXPECT_NEAR(MseOf(*evaluated), MseOf(*job), 1e-6);
  const auto predicted = Predict(
      "predicted", {"--model_def=layers.custom_model",
                    "--prediction_data=" + test_csv(), From("async", last)});
  EXPECT_EQ(predicted->Wait(), 0) << predicted->Output();

  // With nothing left to train, all others export what they have read.
  const Flags ways[] = {
      {"--distribution_strategy=Local", "--num_workers=1"},
      {"--distribution_strategy=AllreduceStrategy", "--num_workers=2"},
      Servers(1, 1),
      Servers(3, 1),
      {"--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=2",
       "--num_workers=1", "--embedding_layer_limit=0"}};
  for (size_t i = 0; i < std::size(ways); ++i) {
    const std::string name = absl::StrCat("way", i);
    Flags more = ways[i];
    more.push_back(From("async", last));
    more.push_back(absl::StrCat("--max_step=", last));
    const auto other = TrainLayers(name, more);
    ASSERT_EQ(other->Wait(), 0) << other->Output();
    EXPECT_TRUE(StateDict(name) == StateDict("async")) << name;
  }
}

TEST_F(PsLayersTest, IdsThatAreTooLargeAreAnError) {
  Flags flags = Servers(1, 1);
  flags.push_back("--model_params=first=19950");
  const auto job = TrainLayers("large", flags);
  EXPECT_EQ(job->Wait(), 1);
  EXPECT_THAT(std::string(job->End().at("reason")),
              testing::AllOf(HasSubstr("index out of range in self"),
                             HasSubstr("'users.weight'")));
}

TEST_F(PsLayersTest, ALimitOfZeroLeavesThemOnTheWorkers) {
  Flags flags = Servers(1, 1);
  flags.push_back("--embedding_layer_limit=0");
  const auto job = TrainLayers("dense", flags);
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  EXPECT_THAT(RowsIn(Path("dense")), testing::IsEmpty());
  EXPECT_THAT(job->Log("0"), Not(HasSubstr("live on")));
}

}  // namespace
}  // namespace elasticdl::test
