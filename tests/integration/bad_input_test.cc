// What users get wrong, each with the message that helps them.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;
using ::testing::SizeIs;

class BadInputTest : public JobTest {
 protected:
  // The job ends with this exit code and message.
  void ExpectFailure(Job& job, int exit_code,
                     const Matcher<std::string>& message) {
    EXPECT_EQ(job.Wait(), exit_code) << job.Output();
    EXPECT_THAT(job.process().err(), message);
  }
};

TEST_F(BadInputTest, UnknownFlag) {
  const auto job = Train("bad", {"--num_epoches=2"});
  ExpectFailure(*job, 2,
                AllOf(HasSubstr("--num_epoches"), HasSubstr("--num_epochs")));
  EXPECT_THAT(Lines(job->process().err_path()), SizeIs(1)) << "one clear line";
}

TEST_F(BadInputTest, BadValue) {
  const auto job = Train("bad", {"--minibatch_size=many"});
  ExpectFailure(*job, 2,
                AllOf(HasSubstr("--minibatch_size"), HasSubstr("many")));
}

TEST_F(BadInputTest, BadResourceString) {
  const auto job = Train("bad", {"--worker_resource_request=cpu=lots"});
  ExpectFailure(
      *job, 2,
      AllOf(HasSubstr("--worker_resource_request"), HasSubstr("lots")));
}

TEST_F(BadInputTest, MissingDataDirectory) {
  const auto job = Train("bad", {"--training_data=" + Path("nowhere")});
  ExpectFailure(
      *job, 1, AllOf(HasSubstr("--training_data"), HasSubstr(Path("nowhere"))));
  EXPECT_THAT(job->Events("pod_started"), IsEmpty()) << "a worker was started";
}

TEST_F(BadInputTest, EmptyDataSet) {
  const std::string empty = Path("empty.csv");
  std::ofstream(empty) << "id,x,y\n";
  const auto job = Train(
      "bad", {"--training_data=" + empty, "--data_reader_params=header=true"});
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("--training_data"), HasSubstr(empty),
                      HasSubstr("no records")));
  EXPECT_THAT(job->Events("pod_started"), IsEmpty()) << "a worker was started";
}

TEST_F(BadInputTest, EmptyDataFolder) {
  const std::string empty = Path("empty");
  ASSERT_EQ(mkdir(empty.c_str(), 0755), 0);
  const auto job = Train("bad", {"--training_data=" + empty});
  ExpectFailure(*job, 1, AllOf(HasSubstr("--training_data"), HasSubstr(empty)));
  EXPECT_THAT(job->Events("pod_started"), IsEmpty()) << "a worker was started";
}

TEST_F(BadInputTest, TruncatedRecordIo) {
  const auto convert =
      Run("convert", {Program("elasticdl"), "data", "convert", train_csv(),
                      "--output=" + Path("data")});
  ASSERT_EQ(convert->Wait(), 0) << convert->err();
  const std::string file = Path("data/data-00000");
  const std::string bytes = Contents(file);
  ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(bytes.size() - 7)), 0);
  const auto job = Train("bad", {"--training_data=" + Path("data")});
  ExpectFailure(
      *job, 1,
      AllOf(HasSubstr(file), HasSubstr("chunk 0"), HasSubstr("offset")));
}

TEST_F(BadInputTest, DamagedRecordIo) {
  const auto convert =
      Run("convert", {Program("elasticdl"), "data", "convert", train_csv(),
                      "--output=" + Path("data")});
  ASSERT_EQ(convert->Wait(), 0) << convert->err();
  const std::string file = Path("data/data-00000");
  std::string bytes = Contents(file);
  bytes[bytes.size() - 7] ^= 1;
  std::ofstream(file) << bytes;
  const auto job = Train("bad", {"--training_data=" + Path("data")});
  ExpectFailure(
      *job, 1,
      AllOf(HasSubstr(file), HasSubstr("chunk 0"), HasSubstr("checksum")));
}

TEST_F(BadInputTest, WrongModelSymbol) {
  const auto job = Train("bad", {"--model_def=partial.no_such_model"});
  ExpectFailure(
      *job, 1,
      AllOf(HasSubstr("partial.cc"), HasSubstr("no function 'no_such_model'"),
            HasSubstr("--model_def")));
}

TEST_F(BadInputTest, ModelWithoutLoss) {
  const auto job = Train("bad", {"--model_def=partial.custom_model"});
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("partial.cc"), HasSubstr("no function 'loss'"),
                      HasSubstr("--loss")));
}

// As if memory ran out each time: without an end, they would be replaced for
// ever.
TEST_F(BadInputTest, WorkersThatNeverGetToAStep) {
  const auto job =
      Train("late", {"--distribution_strategy=AllreduceStrategy",
                     "--num_workers=6", "--failpoints=worker.step=kill@1"});
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("no step was trained: 20 workers were lost"),
                      HasSubstr("SIGKILL"), HasSubstr("--num_workers")));
}

TEST_F(BadInputTest, MissingModelFile) {
  const auto job = Train("bad", {"--model_def=nothing.custom_model"});
  ExpectFailure(*job, 1, HasSubstr("nothing.cc"));
}

TEST_F(BadInputTest, ModelThatDoesNotCompile) {
  const auto job = Train("bad", {"--model_def=broken.custom_model"});
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("broken.cc"), HasSubstr("does not compile"),
                      HasSubstr("no_such_thing")));
}

TEST_F(BadInputTest, ModelThatThrowsInFeed) {
  const auto job = Train("bad", {"--model_params=throw_at=77"});
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("function 'feed'"), HasSubstr("linear.cc"),
                      HasSubstr(absl::StrCat("record 77 of ", train_csv())),
                      HasSubstr("this record is poison")));
  EXPECT_EQ(job->End().at("exit_code"), 1);
}

TEST_F(BadInputTest, LossThatIsNotANumber) {
  const auto job =
      Train("bad", {"--shuffle=false", "--model_params=nan_at=77"});
  ExpectFailure(
      *job, 1,
      AllOf(HasSubstr("the loss is nan at step 5"), HasSubstr(train_csv())));
}

TEST_F(BadInputTest, CheckpointOfAnotherModel) {
  const std::string checkpoints = Path("checkpoints");
  const auto first = Train(
      "first", {"--checkpoint_steps=1000", "--checkpoint_dir=" + checkpoints});
  ASSERT_EQ(first->Wait(), 0) << first->Output();
  const auto job = Train("bad", {"--model_params=width=16",
                                 "--checkpoint_dir_for_init=" + checkpoints});
  ExpectFailure(
      *job, 1,
      AllOf(HasSubstr(checkpoints), HasSubstr("hidden."), HasSubstr("16")));
}

TEST_F(BadInputTest, RunningJobKeepsItsName) {
  const std::string gate = MakeGate();
  const auto job = Train(
      "name", {absl::StrCat("--model_params=gate=", gate, ";gate_step=2")});
  job->WaitForWorker(0);
  const auto second = Start(
      "train", "second",
      {"--job_name=name", "--model_zoo=" + Zoo(),
       "--model_def=linear.custom_model", "--training_data=" + train_csv()});
  ExpectFailure(*second, 1, HasSubstr("name"));
  ASSERT_TRUE(WaitForGate(gate));
  OpenGate(gate);
  EXPECT_EQ(job->Wait(), 0) << job->Output();
}

// In a mount namespace of this process and its children.
bool MountSmallDisk(const std::string& path) {
  if (unshare(CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, "size=128k") == 0;
}

TEST_F(BadInputTest, FullDiskWhileSaving) {
  const std::string disk = Path("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0755), 0);
  if (!MountSmallDisk(disk)) {
    GTEST_SKIP() << "mounting a small disk: " << std::strerror(errno);
  }
  // About 240 KB of variables.
  const auto job = Train(
      "full", {"--model_params=width=20000;lr=0.00001", "--checkpoint_steps=10",
               "--checkpoint_dir=" + disk + "/checkpoints", "--num_epochs=2"});
  // Training goes on to its end; that its result is not saved is an error.
  ExpectFailure(*job, 1,
                AllOf(HasSubstr("last checkpoint was not saved"),
                      HasSubstr("No space left on device"), HasSubstr(disk)));
  EXPECT_EQ(job->End().at("step"), 40);
  EXPECT_TRUE(LedgerIsExact(job->audit(), 2));
  EXPECT_THAT(job->Events("checkpoint"), Not(IsEmpty()));
  for (const Json& event : job->Events("checkpoint")) {
    EXPECT_TRUE(event.contains("error")) << event;
  }
  EXPECT_THAT(List(disk + "/checkpoints"), IsEmpty()) << "the space is free";
  umount2(disk.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace elasticdl::test
