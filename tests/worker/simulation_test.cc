// Random schedules of whole training jobs: whatever happens, every record is in
// the model exactly once, and model and ledger agree.
//   --seeds=N      how many schedules of each kind (also ELASTICDL_SEEDS)
//   --first=SEED   the first seed; one failure is repeated with --seeds=1
//   --actions=N    stop there: what led to a job that hangs
#include "simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"

namespace elasticdl::worker::test {
namespace {

uint32_t first_seed = 1;
uint32_t num_seeds = 100;
int64_t most_actions = SimulationOptions().most_actions;

void Add(SimulationReport& all, const SimulationReport& one) {
  all.actions += one.actions;
  all.messages += one.messages;
  all.kills += one.kills;
  all.leaves += one.leaves;
  all.joins += one.joins;
  all.master_deaths += one.master_deaths;
  all.cut_backs += one.cut_backs;
  all.caught_up += one.caught_up;
  all.kept += one.kept;
  all.hangs += one.hangs;
  all.worlds += one.worlds;
  all.shrunk += one.shrunk;
  all.checkpoints += one.checkpoints;
  all.failed_saves += one.failed_saves;
  all.damaged_loads += one.damaged_loads;
  all.slow_saves += one.slow_saves;
  all.live_saves += one.live_saves;
  all.early_ends += one.early_ends;
  all.evaluations += one.evaluations;
}

// Runs the seeds with options that `vary` makes.
SimulationReport RunSeeds(
    const std::function<void(SimulationOptions&, std::mt19937&)>& vary) {
  SimulationReport all;
  uint32_t done = 0;
  const absl::Time start = Clock::Real().Now();
  for (uint32_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.most_actions = most_actions;
    std::mt19937 random(seed);
    options.workers = 1 + static_cast<int>(random() % 4);
    options.minibatch_size = 1 + static_cast<int64_t>(random() % 6);
    options.minibatches_per_task = 1 + static_cast<int64_t>(random() % 4);
    vary(options, random);
    // Of every kind of schedules, half have a state that is passed on in many
    // pieces.
    std::mt19937 more(seed + 7);
    if (more() % 2 == 0) {
      options.background_joins = true;
      options.join_bandwidth = static_cast<double>(more() % 20) * 5000;
    }
    options.live_saves = more() % 2 == 0;
    if (more() % 3 == 0) options.keep_state = true;
    Simulation simulation(options);
    const absl::Status status = simulation.Run();
    EXPECT_TRUE(status.ok()) << status.message();
    Add(all, simulation.report());
    ++done;
    if (!status.ok()) break;
  }
  const double seconds = absl::ToDoubleSeconds(Clock::Real().Now() - start);
  std::printf(
      "%u schedules from seed %u, %.0f per second: %lld actions, %lld "
      "messages, %d worlds, %d shrunk, %d kills, %d leaves, %d joins, %d "
      "deaths of the "
      "master, %d cut backs, %d checkpoints, %d failed and %d slow saves, %d "
      "evaluations, %d early ends, %d caught up, %d live saves, %d kept "
      "states, %d damaged loads\n",
      done, first_seed, done / seconds, static_cast<long long>(all.actions),
      static_cast<long long>(all.messages), all.worlds, all.shrunk, all.kills,
      all.leaves, all.joins, all.master_deaths, all.cut_backs, all.checkpoints,
      all.failed_saves, all.slow_saves, all.evaluations, all.early_ends,
      all.caught_up, all.live_saves, all.kept, all.damaged_loads);
  return all;
}

// What a kind of schedules is for has happened; with few seeds it may not.
void ExpectSome(int64_t count) {
  if (num_seeds >= 50) {
    EXPECT_GT(count, 0);
  }
}

TEST(SimulationTest, WithoutFaults) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.checkpoints);
  ExpectSome(all.evaluations);
}

TEST(SimulationTest, Kills) {
  const SimulationReport all = RunSeeds(
      [](SimulationOptions& options, std::mt19937&) { options.kills = 500; });
  ExpectSome(all.kills);
  ExpectSome(all.cut_backs);
  ExpectSome(all.shrunk);
}

// Whoever dies, and if it is everybody: no step is lost.
TEST(SimulationTest, KillsWithKeptStates) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.workers = 1 + static_cast<int>(random() % 3);
        options.keep_state = true;
        options.kills = 900;
        options.most_faults = 25;
        options.joins = static_cast<int>(random() % 2) * 200;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
        if (random() % 4 == 0) {
          options.global_batch_size =
              options.minibatch_size * (1 + static_cast<int64_t>(random() % 6));
        }
        if (random() % 5 == 0) options.max_step = 10;
      });
  ExpectSome(all.kept);
  EXPECT_EQ(all.cut_backs, 0);
}

// Also if nobody is dead, but everybody hangs.
TEST(SimulationTest, HangsWithKeptStates) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.workers = 1 + static_cast<int>(random() % 3);
        options.keep_state = true;
        options.hangs = 900;
        options.kills = static_cast<int>(random() % 2) * 300;
        options.slow_times = static_cast<int>(random() % 2) * 200;
        options.flaps = static_cast<int>(random() % 2) * 200;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.hangs);
  ExpectSome(all.kept);
  EXPECT_EQ(all.cut_backs, 0);
}

TEST(SimulationTest, KillsWithCheckpointsAndEvaluations) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 500;
        options.checkpoint_steps = 1 + static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.kills);
  ExpectSome(all.cut_backs);
}

TEST(SimulationTest, LeavesAndJoins) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.leaves = 500;
        options.joins = 500;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.leaves);
  ExpectSome(all.joins);
}

// Whoever gives, takes or watches a piece may die at any of them.
TEST(SimulationTest, KillsWhileMembersCatchUp) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.workers = 2 + static_cast<int>(random() % 3);
        options.kills = 600;
        options.joins = 600;
        options.leaves = static_cast<int>(random() % 2) * 400;
        options.master_deaths = static_cast<int>(random() % 2) * 100;
        options.most_faults = 30;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 12);
        if (random() % 3 == 0) {
          options.global_batch_size =
              options.minibatch_size * (1 + static_cast<int64_t>(random() % 6));
        }
        options.data.epochs = 4;
      });
  ExpectSome(all.kills);
  ExpectSome(all.caught_up);
}

TEST(SimulationTest, Everything) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 300;
        options.leaves = 200;
        options.joins = 200;
        options.slow_times = 100;
        options.failed_connections = 30;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.kills);
}

TEST(SimulationTest, DeathsOfTheMaster) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 200;
        options.leaves = 100;
        options.master_deaths = 300;
        options.flaps = 100;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.master_deaths);
}

// Saves that take as long as a job does, or fail, on workers that come and go.
TEST(SimulationTest, SlowAndFailedSaves) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 200;
        options.leaves = 400;
        options.joins = 300;
        options.slow_saves = 300;
        options.failed_saves = random() % 2 == 0 ? 0 : 100;
        options.checkpoint_steps = 1 + static_cast<int64_t>(random() % 4);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.failed_saves);
  ExpectSome(all.slow_saves);
  ExpectSome(all.live_saves);
}

// Who restores a checkpoint finds that it is damaged: an older one has to do.
TEST(SimulationTest, DamagedCheckpoints) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 500;
        options.leaves = 100;
        options.joins = 100;
        options.master_deaths = random() % 2 == 0 ? 0 : 200;
        options.damaged_loads = 400;
        options.checkpoint_steps = 1 + static_cast<int64_t>(random() % 4);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
      });
  ExpectSome(all.damaged_loads);
  ExpectSome(all.cut_backs);
}

// Steps of a given size, which a rank may have no part of; the end before the
// data's.
TEST(SimulationTest, GlobalBatchesAndEarlyEnds) {
  const SimulationReport all =
      RunSeeds([](SimulationOptions& options, std::mt19937& random) {
        options.kills = 200;
        options.leaves = 200;
        options.joins = 200;
        options.master_deaths = random() % 2 == 0 ? 0 : 100;
        options.checkpoint_steps = static_cast<int64_t>(random() % 6);
        options.evaluation_steps = static_cast<int64_t>(random() % 8);
        if (random() % 4 != 0) {
          options.global_batch_size =
              options.minibatch_size * (1 + static_cast<int64_t>(random() % 6));
        }
        const int64_t last = 1 + static_cast<int64_t>(random() % 24);
        if (random() % 2 == 0) {
          options.max_step = last;
        } else {
          options.stop_after = last;
        }
      });
  ExpectSome(all.early_ends);
}

}  // namespace
}  // namespace elasticdl::worker::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A failure has its own story; the log would take most of the time.
  elasticdl::InitLog("simulation", elasticdl::LogLevel::kCritical);
  if (const char* seeds = std::getenv("ELASTICDL_SEEDS"); seeds != nullptr) {
    elasticdl::worker::test::num_seeds =
        static_cast<uint32_t>(std::stoul(seeds));
  }
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--seeds=", 0) == 0) {
      elasticdl::worker::test::num_seeds =
          static_cast<uint32_t>(std::stoul(argument.substr(8)));
    } else if (argument.rfind("--first=", 0) == 0) {
      elasticdl::worker::test::first_seed =
          static_cast<uint32_t>(std::stoul(argument.substr(8)));
    } else if (argument.rfind("--actions=", 0) == 0) {
      elasticdl::worker::test::most_actions = std::stoll(argument.substr(10));
    }
  }
  return RUN_ALL_TESTS();
}
