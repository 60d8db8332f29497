// Checkpoints of a model that is on servers: read, saved with its ledger,
// restored on other servers.
#include "server_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/checkpoint/checkpoint.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/common/status.h"
#include "kept_saver.h"
#include "served.h"

namespace elasticdl::worker::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A worker that can save.
struct SavingWorker : PipeWorker {
  SavingWorker(PsServers& servers, ServedModel& model,
               std::unique_ptr<checkpoint::Saver> backend,
               const std::string& folder)
      : PipeWorker(servers, model, /*overlap=*/false),
        saver(ServerSaver::Deps{client, *replica, pipe.dense(),
                                [this](v1::WorkerMessage message) {
                                  sent.push_back(std::move(message));
                                },
                                clock, folder},
              std::move(backend)) {}

  std::vector<v1::WorkerMessage> sent;
  ManualClock clock;
  ServerSaver saver;
};

v1::SaveNow MakeSaveNow(int64_t step, bool versions_may_differ = false) {
  v1::SaveNow save;
  save.set_step(step);
  save.set_lineage(3);
  save.set_versions_may_differ(versions_may_differ);
  return save;
}

v1::LedgerReply MakeLedger(int64_t step) {
  v1::LedgerReply reply;
  reply.set_step(step);
  reply.set_run("a run");
  reply.mutable_ledger()->set_committed_records(8);
  return reply;
}

std::vector<float> ToFloats(absl::Span<const char> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class ServerSaverTest : public testing::Test {
 protected:
  ServerSaverTest() { model_.optimizer = "SGD(lr=1,momentum=0.5)"; }
  ~ServerSaverTest() override { ExpectOk(InitFailpoints("")); }
  void Make(bool saves = true) {
    worker_ = std::make_unique<SavingWorker>(
        servers_, model_, saves ? std::make_unique<KeptSaver>(saves_) : nullptr,
        dir_.Path("rows"));
    worker_->Connect();
    // Both have ids 2 and 3.
    worker_->Train({0, {1, 2, 3, 4}});
    worker_->Train({4, {2, 2, 3, 3}});
  }
  // What was said since the last call.
  std::vector<v1::WorkerMessage> Sent() {
    return std::exchange(worker_->sent, {});
  }
  std::string ErrorOfSave(const v1::SaveNow& save) {
    worker_->saver.OnSaveNow(save);
    const auto sent = Sent();
    EXPECT_EQ(sent.size(), 1u);
    if (sent.empty() || !sent[0].has_checkpoint_done()) return "";
    EXPECT_EQ(sent[0].checkpoint_done().step(), save.step());
    EXPECT_EQ(sent[0].checkpoint_done().lineage(), save.lineage());
    return sent[0].checkpoint_done().error();
  }
  // A save up to what its backend gets.
  void Save() {
    worker_->saver.OnSaveNow(MakeSaveNow(2));
    worker_->saver.OnLedger(MakeLedger(2));
  }
  // Writes the last save to a disk, and reads it.
  absl::StatusOr<checkpoint::Loaded> WriteAndLoad() {
    ELASTICDL_ASSIGN_OR_RETURN(
        const std::string path,
        checkpoint::Save(dir_.Path("saved"), saves_.back().snapshot.snapshot,
                         {}));
    return checkpoint::Load(path);
  }

  elasticdl::test::TempDir dir_;
  ServedModel model_;
  PsServers servers_{2};
  std::vector<KeptSaver::Save> saves_;
  std::unique_ptr<SavingWorker> worker_;
};

TEST_F(ServerSaverTest, SavesTheModelOfAllServersWithItsLedger) {
  Make();
  worker_->saver.OnSaveNow(MakeSaveNow(2));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].checkpoint_begin().step(), 2);
  EXPECT_EQ(sent[0].checkpoint_begin().lineage(), 3);
  EXPECT_TRUE(saves_.empty());

  worker_->saver.OnLedger(MakeLedger(2));
  ASSERT_EQ(saves_.size(), 1u);
  const checkpoint::Snapshot& snapshot = saves_[0].snapshot.snapshot;
  EXPECT_EQ(snapshot.version, 2);
  EXPECT_EQ(snapshot.optimizer_step, 2);
  EXPECT_EQ(snapshot.lineage.generation, 3);
  EXPECT_EQ(snapshot.lineage.run, "a run");
  EXPECT_EQ(snapshot.ledger->committed_records(), 8);
  ASSERT_EQ(snapshot.variables.size(), 1u);
  // 1, and then 1 with half of the first.
  EXPECT_THAT(ToFloats(snapshot.variables[0].bytes), ElementsAre(2.5, 2.5));
  ASSERT_EQ(snapshot.slots.size(), 1u);
  std::vector<int64_t> ids;
  for (const checkpoint::TableRows& part : snapshot.tables) {
    EXPECT_EQ(part.name, "users");
    EXPECT_EQ(part.slots.size(), 1u);
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  }
  EXPECT_THAT(ids, UnorderedElementsAre(1, 2, 3, 4));
}

TEST_F(ServerSaverTest, TellsHowTheSaveEnded) {
  Make();
  Save();
  Sent();
  worker_->clock.now += absl::Seconds(5);
  saves_[0].done("the path");
  auto sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].checkpoint_done().step(), 2);
  EXPECT_EQ(sent[0].checkpoint_done().lineage(), 3);
  EXPECT_EQ(sent[0].checkpoint_done().path(), "the path");
  EXPECT_EQ(sent[0].checkpoint_done().seconds(), 5);
  Save();
  Sent();
  saves_[1].done(absl::DataLossError("the disk is full"));
  sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].checkpoint_done().error(), "the disk is full");
  // A newer one has taken its place.
  Save();
  Sent();
  saves_[2].done(absl::CancelledError("overtaken"));
  EXPECT_TRUE(Sent().empty());
}

TEST_F(ServerSaverTest, ACopyWhoseLedgerIsRefusedIsDropped) {
  Make();
  worker_->saver.OnSaveNow(MakeSaveNow(2));
  v1::LedgerReply refused;
  refused.set_step(2);
  worker_->saver.OnLedger(refused);
  EXPECT_TRUE(saves_.empty());
  // Too late.
  worker_->saver.OnLedger(MakeLedger(2));
  EXPECT_TRUE(saves_.empty());
  Save();
  EXPECT_EQ(saves_.size(), 1u);
}

TEST_F(ServerSaverTest, ALedgerOfAnotherStepIsNotThatOfTheCopy) {
  Make();
  worker_->saver.OnSaveNow(MakeSaveNow(2));
  worker_->saver.OnLedger(MakeLedger(1));
  EXPECT_TRUE(saves_.empty());
  worker_->saver.OnLedger(MakeLedger(2));
  EXPECT_EQ(saves_.size(), 1u);
}

TEST_F(ServerSaverTest, ANewerCopyTakesThePlaceOfOneThatWaits) {
  Make();
  worker_->saver.OnSaveNow(MakeSaveNow(2));
  worker_->Train({8, {5, 6, 7, 8}});
  worker_->saver.OnSaveNow(MakeSaveNow(3));
  worker_->saver.OnLedger(MakeLedger(2));
  EXPECT_TRUE(saves_.empty());
  worker_->saver.OnLedger(MakeLedger(3));
  ASSERT_EQ(saves_.size(), 1u);
  EXPECT_EQ(saves_[0].snapshot.snapshot.optimizer_step, 3);
}

TEST_F(ServerSaverTest, SaysWhyItCannotSave) {
  Make();
  ExpectOk(InitFailpoints("worker.read_model=error@1x1"));
  EXPECT_NE(ErrorOfSave(MakeSaveNow(2)), "");
  Make(/*saves=*/false);
  EXPECT_THAT(ErrorOfSave(MakeSaveNow(2)), HasSubstr("--checkpoint_dir"));
  worker_->saver.Flush();
}

TEST_F(ServerSaverTest, AModelOfTwoVersionsIsReadOnlyWhenTheMasterSaysSo) {
  Make();
  // As if a worker had died between two servers.
  servers_.PushTo(0);
  EXPECT_THAT(ErrorOfSave(MakeSaveNow(2)), HasSubstr("version"));
  worker_->saver.OnSaveNow(MakeSaveNow(2, /*versions_may_differ=*/true));
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].has_checkpoint_begin());
}

TEST_F(ServerSaverTest, AWorkerThatIsToStopSaysNothing) {
  Make();
  worker_->client.Cancel();
  worker_->saver.OnSaveNow(MakeSaveNow(2));
  EXPECT_TRUE(Sent().empty());
}

TEST_F(ServerSaverTest, OtherServersGetTheWholeModel) {
  Make();
  Save();
  auto loaded = WriteAndLoad();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ServedModel model;
  model.optimizer = model_.optimizer;
  PsServers servers(3);
  SavingWorker restored(servers, model, nullptr, "");
  restored.Define();
  ExpectOk(restored.saver.Restore(*loaded));

  OtherWorker before(servers_, worker_->Definition());
  OtherWorker after(servers, restored.Definition());
  EXPECT_EQ(after.Version(), 2);
  EXPECT_EQ(after.Dense(), before.Dense());
  // The next minibatch changes both in the same way: slots were restored, too.
  worker_->Train({8, {1, 2, 3, 9}});
  restored.Train({8, {1, 2, 3, 9}});
  EXPECT_EQ(after.Dense(), before.Dense());
  for (const int64_t id : {1, 2, 3, 4, 9}) {
    EXPECT_EQ(after.Row(id), before.Row(id)) << id;
  }
}

TEST_F(ServerSaverTest, StateOfAnotherOptimizerBeginsAnew) {
  Make();
  Save();
  auto loaded = WriteAndLoad();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ServedModel model;
  model.optimizer = "Adagrad(lr=1)";
  PsServers servers(1);
  SavingWorker restored(servers, model, nullptr, "");
  restored.Define();
  ExpectOk(restored.saver.Restore(*loaded));
  OtherWorker before(servers_, worker_->Definition());
  OtherWorker after(servers, restored.Definition());
  EXPECT_EQ(after.Dense(), before.Dense());
  EXPECT_EQ(after.Row(2), before.Row(2));
}

TEST_F(ServerSaverTest, ATableOfAnotherWidthIsAnotherModel) {
  Make();
  Save();
  auto loaded = WriteAndLoad();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ServedModel model;
  model.optimizer = model_.optimizer;
  model.dim = 3;
  PsServers servers(1);
  SavingWorker restored(servers, model, nullptr, "");
  restored.Define();
  const absl::Status status = restored.saver.Restore(*loaded);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("users"));
}

}  // namespace
}  // namespace elasticdl::worker::test
