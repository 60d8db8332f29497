// Random chaos for as long as you like (`make chaos`):
//
//   chaos [--minutes=M] [--jobs=N] [--seed=S] [--strategy=allreduce|ps]
//
// Trains one job after the other with random settings; kills, stops and ends
// its processes, the master included, and changes their number at random
// moments. Each job must
// succeed with an exact ledger, and with one model on all members or every
// record once on all servers. Prints a line per job and a summary; exit code 1
// when anything was wrong. Job number i has the seed S + i: --jobs=1 --seed=...
// repeats it, as far as the clock allows. What a job that failed had said is
// left in chaos-<seed>.log.
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "integration/chaos_run.h"

namespace elasticdl::test {
namespace {

struct Settings {
  double minutes = 10;
  int64_t jobs = 0;  // 0: as many as there is time for.
  int64_t seed = 0;
  std::string strategy;  // Empty: both, by the seed.
};
Settings settings;

std::unique_ptr<ChaosRun> MakeRun(int64_t seed) {
  const bool servers =
      settings.strategy.empty() ? seed % 2 == 0 : settings.strategy == "ps";
  return servers ? MakePsRun(seed) : MakeAllreduceRun(seed);
}

TEST(Chaos, RandomSchedules) {
  std::cout << "seed " << settings.seed << "\n";
  const absl::Time end = absl::Now() + absl::Minutes(settings.minutes);
  Tally all;
  for (int64_t i = 0; settings.jobs > 0 ? i < settings.jobs : absl::Now() < end;
       ++i) {
    all.Add(MakeRun(settings.seed + i)->RunJob());
  }
  std::cout << absl::StrFormat(
      "%d jobs, %d failed; %d kills, %d masters, %d stops, %d terms, %d "
      "scalings; %d joins, %d worlds, %d cut-backs\n"
      "recovery: p50 %.1f ms, p99 %.1f ms (%d times)\n"
      "ledger violations: %d\n"
      "model mismatches: %d\n",
      all.jobs, all.failed_jobs, all.kills, all.masters, all.stops, all.terms,
      all.scalings, all.joins, all.worlds, all.cut_backs,
      Percentile(all.recovery_ms, 0.5), Percentile(all.recovery_ms, 0.99),
      all.recovery_ms.size(), all.ledger_violations, all.model_mismatches);
  EXPECT_TRUE(all.good());
}

bool ParseSettings(int argc, char** argv) {
  settings.seed = absl::ToUnixSeconds(absl::Now());
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--minutes=")) {
      if (!absl::SimpleAtod(text, &settings.minutes)) return false;
    } else if (absl::ConsumePrefix(&text, "--jobs=")) {
      if (!absl::SimpleAtoi(text, &settings.jobs)) return false;
    } else if (absl::ConsumePrefix(&text, "--seed=")) {
      if (!text.empty() && !absl::SimpleAtoi(text, &settings.seed))
        return false;
    } else if (absl::ConsumePrefix(&text, "--strategy=")) {
      settings.strategy = std::string(text);
      if (text != "allreduce" && text != "ps") return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace elasticdl::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!elasticdl::test::ParseSettings(argc, argv)) {
    std::cerr << "usage: chaos [--minutes=M] [--jobs=N] [--seed=S] "
                 "[--strategy=allreduce|ps]\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
