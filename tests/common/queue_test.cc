#include "elasticdl/common/queue.h"

#include <gtest/gtest.h>

#include "elasticdl/common/thread.h"

namespace elasticdl {
namespace {

TEST(QueueTest, PassesEverythingInOrderThroughASmallBuffer) {
  Queue<int> queue(2);
  Thread producer("producer", [&] {
    for (int i = 0; i < 1000; ++i) queue.Push(i);
    queue.Close();
  });
  int expected = 0;
  while (auto value = queue.Pop()) EXPECT_EQ(*value, expected++);
  EXPECT_EQ(expected, 1000);
}

TEST(QueueTest, CloseWakesAProducerThatWaitsForRoom) {
  Queue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  bool pushed = true;
  Thread producer("producer", [&] { pushed = queue.Push(2); });
  queue.Close();
  producer.Join();
  EXPECT_FALSE(pushed);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(QueueTest, PopGivesUpAtItsTimeout) {
  Queue<int> queue(1);
  EXPECT_EQ(queue.Pop(absl::Milliseconds(1)), std::nullopt);
  EXPECT_FALSE(queue.closed());
}

}  // namespace
}  // namespace elasticdl
