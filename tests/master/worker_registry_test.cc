#include "worker_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Worker Make(int64_t id, bool ready = true) {
  Worker worker;
  worker.id = id;
  worker.ready = ready;
  return worker;
}

TEST(WorkerRegistryTest, IdsAreNeverGivenTwice) {
  WorkerRegistry registry;
  EXPECT_EQ(registry.TakeId(-1, false), 0);
  EXPECT_EQ(registry.TakeId(5, false), 5);
  EXPECT_EQ(registry.TakeId(5, false), 6) << "5 is another process";
  EXPECT_EQ(registry.TakeId(3, false), 3);
  EXPECT_EQ(registry.TakeId(-1, false), 7);
  // The same process on a new stream.
  EXPECT_EQ(registry.TakeId(5, true), 5);
  registry.SkipIds(10);
  EXPECT_EQ(registry.next_id(), 18);
  registry.NoteUsedId(20);
  EXPECT_EQ(registry.TakeId(20, false), 21);
  EXPECT_THAT(registry.used_ids(), ElementsAre(0, 3, 5, 6, 7, 20, 21));
}

TEST(WorkerRegistryTest, FindsByStreamAndById) {
  WorkerRegistry registry;
  EXPECT_TRUE(registry.empty());
  registry.Add(11, Make(1));
  registry.Add(12, Make(2));
  ASSERT_NE(registry.Find(11), nullptr);
  EXPECT_EQ(registry.Find(11)->id, 1);
  EXPECT_EQ(registry.FindById(2), registry.Find(12));
  EXPECT_EQ(registry.ConnectionOf(2), 12);
  EXPECT_EQ(registry.Find(13), nullptr);
  EXPECT_EQ(registry.FindById(3), nullptr);
  EXPECT_THAT(registry.Connections({2, 3, 1}), ElementsAre(12, 11));
  registry.Remove(11);
  EXPECT_FALSE(registry.IsReachable(1));
  EXPECT_FALSE(registry.IsAttached(1));
  registry.Remove(11);
  EXPECT_EQ(registry.size(), 1u);
}

TEST(WorkerRegistryTest, AReleasedWorkerIsAttachedButNotReachable) {
  WorkerRegistry registry;
  registry.Add(11, Make(1));
  registry.Release(1);
  EXPECT_FALSE(registry.IsReachable(1));
  EXPECT_TRUE(registry.IsAttached(1));
  EXPECT_EQ(registry.FindById(1), nullptr);
  EXPECT_NE(registry.Find(11), nullptr);
  EXPECT_THAT(registry.Connections({1}), IsEmpty());
}

TEST(WorkerRegistryTest, TheOldStreamOfAWorkerDoesNotTakeTheNewOneAlong) {
  WorkerRegistry registry;
  registry.Add(11, Make(1));
  registry.Add(12, Make(1));
  registry.Remove(11);
  EXPECT_EQ(registry.ConnectionOf(1), 12);
}

TEST(WorkerRegistryTest, ReadyOnesAreCountedUnlessTheyLeave) {
  WorkerRegistry registry;
  registry.Add(11, Make(1));
  registry.Add(12, Make(2, /*ready=*/false));
  registry.Add(13, Make(3));
  registry.Find(13)->leaving = true;
  EXPECT_EQ(registry.num_ready(), 1);
  // It still hears what all hear.
  EXPECT_THAT(registry.ReadyConnections(), ElementsAre(11, 13));
}

}  // namespace
}  // namespace elasticdl::master
