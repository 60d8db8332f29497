// One worker with two parameter servers in synchronous mode is training on one
// machine, bit for bit: the same minibatches, the same kernels, the same
// checkpoints. Compared with `elasticdl ckpt diff`.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/example_data.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

constexpr int64_t kRecords = 640;

class PsEqualTest : public JobTest {
 protected:
  // Trains an example to its end; the checkpoints are in the folder `name`.
  void TrainExample(const std::string& name, const std::string& model,
                    const Flags& more) {
    Flags flags = {"--model_zoo=" ELASTICDL_EXAMPLES, "--model_def=" + model,
                   "--training_data=" + Path("data"), "--num_workers=1",
                   "--minibatch_size=32", "--keep_checkpoint_max=0",
                   // A last minibatch that is smaller than the others.
                   "--num_minibatches_per_task=3",
                   "--checkpoint_dir=" + Path(name)};
    flags.insert(flags.end(), more.begin(), more.end());
    const auto job = Train(name, flags);
    ASSERT_EQ(job->Wait(), 0) << job->Output();
  }
  // Exit code 0: all values, slots, steps and ledgers are the same.
  void ExpectSame(const std::string& first, const std::string& second) {
    const auto diff = Run("diff", {Program("elasticdl"), "ckpt", "diff",
                                   Path(first), Path(second)});
    EXPECT_EQ(diff->Wait(), 0) << diff->out() << diff->err();
  }
  // In the middle of an epoch the ledgers may differ in how much is handed out
  // ahead.
  void ExpectSameModel(const std::string& first, const std::string& second) {
    const auto diff = Run("diff", {Program("elasticdl"), "ckpt", "diff",
                                   "--json", Path(first), Path(second)});
    ASSERT_LE(diff->Wait().value_or(2), 1) << diff->err();
    const Json differences = Json::parse(diff->out()).at("differences");
    for (const Json& difference : differences) {
      EXPECT_EQ(difference.at("kind"), "ledger") << diff->out();
    }
  }
};

const Flags kLocal = {"--distribution_strategy=Local"};
const Flags kServers = {"--distribution_strategy=ParameterServerStrategy",
                        "--num_ps_pods=2"};

Flags operator+(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(PsEqualTest, Mnist) {
  WriteExamples(Path("data"), kRecords, MakeImage<28, 1>);
  // Momentum and weight decay: slots must be right, too.
  const Flags flags = {"--num_epochs=2", "--checkpoint_steps=15",
                       "--optimizer=SGD(lr=0.01,momentum=0.9,"
                       "weight_decay=0.001)"};
  const std::string model = "mnist.mlp.custom_model";
  TrainExample("local", model, kLocal + flags);
  TrainExample("servers", model, kServers + flags);
  ExpectSame("local", "servers");
  // A save that takes long lets the next one fall out.
  const std::vector<int64_t> versions = Versions(Path("local"));
  for (const int64_t version : Versions(Path("servers"))) {
    if (std::count(versions.begin(), versions.end(), version) == 0) continue;
    ExpectSameModel(absl::StrCat("local/version-", version),
                    absl::StrCat("servers/version-", version));
  }
  // The model's own optimizer is Adam.
  TrainExample("local-adam", model, kLocal + Flags{"--num_epochs=1"});
  TrainExample("servers-adam", model, kServers + Flags{"--num_epochs=1"});
  ExpectSame("local-adam", "servers-adam");
}

// The schedule is the model's, the rate is the servers': a push and a version
// have the rate of their step.
TEST_F(PsEqualTest, LearningRateSchedule) {
  for (const bool servers : {false, true}) {
    Flags flags = servers ? kServers : kLocal;
    flags = flags +
            Flags{"--num_workers=1", "--num_epochs=2",
                  "--model_params=lr=0.08;halve=4",
                  "--checkpoint_dir=" + Path(servers ? "servers" : "local")};
    const auto job = Train(servers ? "servers" : "local", flags);
    ASSERT_EQ(job->Wait(), 0) << job->Output();
  }
  ExpectSame("local", "servers");
  // It makes a difference.
  const auto job = Train(
      "constant", kServers + Flags{"--num_workers=1", "--num_epochs=2",
                                   "--model_params=lr=0.08",
                                   "--checkpoint_dir=" + Path("constant")});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  const auto diff = Run("differs", {Program("elasticdl"), "ckpt", "diff",
                                    Path("servers"), Path("constant")});
  EXPECT_EQ(diff->Wait(), 1) << diff->out();
}

// No server sees the whole gradient; the norm is that of the whole one.
TEST_F(PsEqualTest, ClippingByTheGlobalNorm) {
  WriteExamples(Path("data"), kRecords, MakeImage<28, 1>);
  const std::string model = "mnist.mlp.custom_model";
  const Flags clipped = {
      "--optimizer=SGD(lr=0.1,momentum=0.9,global_clipnorm=0.5)"};
  TrainExample("local", model, kLocal + clipped);
  TrainExample("servers", model, kServers + clipped);
  ExpectSame("local", "servers");
  TrainExample("unclipped", model,
               kServers + Flags{"--optimizer=SGD(lr=0.1,momentum=0.9)"});
  const auto diff = Run("differs", {Program("elasticdl"), "ckpt", "diff",
                                    Path("servers"), Path("unclipped")});
  EXPECT_EQ(diff->Wait(), 1) << diff->out();
}

// Rows on servers start from (seed, table, id), those of a single machine from
// a random generator. So the servers begin with a checkpoint of the one, and
// their own is taken up by it again. Adagrad, because it leaves rows alone that
// a minibatch does not have; Adam moves them all on a single machine.
TEST_F(PsEqualTest, DeepFm) {
  WriteExamples(Path("data"), kRecords, MakeIds);
  const Flags flags = {"--num_epochs=3", "--checkpoint_steps=10",
                       "--optimizer=Adagrad(lr=0.05)"};
  const std::string model = "deepfm.deepfm.custom_model";
  TrainExample("local", model, kLocal + flags);
  const int64_t begin = Versions(Path("local")).front();
  const int64_t end = begin + 30;
  TrainExample("servers", model,
               kServers + flags +
                   Flags{absl::StrCat("--checkpoint_dir_for_init=",
                                      Path("local"), "/version-", begin),
                         absl::StrCat("--max_step=", end)});
  ASSERT_EQ(Versions(Path("servers")).back(), end);
  TrainExample("back", model,
               kLocal + flags +
                   Flags{absl::StrCat("--checkpoint_dir_for_init=",
                                      Path("servers"), "/version-", end)});
  ASSERT_GT(Versions(Path("back")).back(), end);
  ExpectSame("local", "back");
}

}  // namespace
}  // namespace elasticdl::test
