// Short hands for tests of the task manager.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "task_manager.h"

namespace elasticdl::master {

inline v1::LedgerShard MakeShard(const std::string& name, int64_t begin,
                                 int64_t end) {
  v1::LedgerShard shard;
  shard.set_name(name);
  shard.set_begin(begin);
  shard.set_end(end);
  return shard;
}

// Minibatches of 10, tasks of 4 of them, one shard of 100 records: tasks 0-40,
// 40-80, 80-100.
inline TaskManagerOptions SmallJob() {
  TaskManagerOptions options;
  options.training_shards = {MakeShard("a", 0, 100)};
  options.minibatch_size = 10;
  options.num_minibatches_per_task = 4;
  return options;
}

inline TaskManager MakeTasks(TaskManagerOptions options) {
  absl::StatusOr<TaskManager> tasks = TaskManager::Create(std::move(options));
  EXPECT_TRUE(tasks.ok()) << tasks.status();
  return std::move(tasks).value();
}

inline absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

// "TRAINING a 0-40 e0", or why there is no task.
inline std::string Describe(const GrantResult& grant) {
  if (!grant.task.has_value()) return std::string(NoTaskName(grant.reason));
  const v1::Task& task = *grant.task;
  std::string text = v1::TaskType_Name(task.type());
  if (!task.has_range()) return text;
  return text + " " + task.range().shard() + " " +
         std::to_string(task.range().begin()) + "-" +
         std::to_string(task.range().end()) + " e" +
         std::to_string(task.range().epoch());
}

inline constexpr absl::StatusCode kStale =
    absl::StatusCode::kFailedPrecondition;

}  // namespace elasticdl::master
