// What parameter servers hold after kills is what the audit says: a few lines
// of plain arithmetic, which share no code with the programs, train the model
// of zoo/rows.cc in the order of the audit and get the same values.
#include <signal.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "integration/chaos.h"

namespace elasticdl::test {
namespace {

// ---- the reference ----

// Two values with the state of a textbook optimizer.
struct Pair {
  explicit Pair(double start) : value{start, start} {}
  double value[2];
  double m[2] = {0, 0};  // Adagrad: the sum of squares.
  double v[2] = {0, 0};

  void Adam(const double* g, double step) {
    for (int i = 0; i < 2; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      value[i] -= 0.02 * (m[i] / (1 - std::pow(0.9, step))) /
                  (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-8);
    }
  }
  void Adagrad(const double* g) {
    for (int i = 0; i < 2; ++i) {
      m[i] += g[i] * g[i];
      value[i] -= 0.2 * g[i] / (std::sqrt(m[i]) + 1e-10);
    }
  }
};

// Records of a minibatch.
using Range = std::pair<int64_t, int64_t>;
constexpr int64_t kMinibatch = 16;

struct Record {
  int64_t user;
  double x, y;
};

struct Replay {
  std::vector<Record> data;
  bool adam = false;
  // Of the gradient of each minibatch, over weight and rows; 0: none.
  double clip_norm = 0;
  // How many minibatches were longer than that.
  int clipped = 0;
  Pair weight{0};
  std::map<int64_t, Pair> users;

  struct Sum {
    double g[2] = {0, 0};
    void Add(double first, double second) {
      g[0] += first;
      g[1] += second;
    }
    double Squared() const { return g[0] * g[0] + g[1] * g[1]; }
  };
  struct Gradient {
    Sum all;
    std::map<int64_t, Sum> by_user;
  };

  // The mean over the records [range.first, range.second).
  Gradient GradientOf(const Range& range) {
    Gradient gradient;
    for (int64_t i = range.first; i < range.second; ++i) {
      const Record& r = data[static_cast<size_t>(i)];
      const Pair& user = users.emplace(r.user, 0.5).first->second;
      const double error = user.value[0] + weight.value[0] +
                           (user.value[1] + weight.value[1]) * r.x - r.y;
      const double g =
          2 * error / static_cast<double>(range.second - range.first);
      gradient.all.Add(g, g * r.x);
      gradient.by_user[r.user].Add(g, g * r.x);
    }
    return gradient;
  }
  // These minibatches are version number `step`: their mean by records.
  void Train(const std::vector<Range>& minibatches, int64_t step) {
    int64_t records = 0;
    for (const Range& range : minibatches) {
      records += range.second - range.first;
    }
    Gradient mean;
    for (const Range& range : minibatches) {
      const Gradient one = GradientOf(range);
      double squared = one.all.Squared();
      for (const auto& [id, sum] : one.by_user) squared += sum.Squared();
      double part = static_cast<double>(range.second - range.first) /
                    static_cast<double>(records);
      if (clip_norm > 0 && squared > clip_norm * clip_norm) {
        part *= clip_norm / std::sqrt(squared);
        ++clipped;
      }
      mean.all.Add(part * one.all.g[0], part * one.all.g[1]);
      for (const auto& [id, sum] : one.by_user) {
        mean.by_user[id].Add(part * sum.g[0], part * sum.g[1]);
      }
    }
    Apply(weight, mean.all.g, step);
    for (auto& [id, sum] : mean.by_user) Apply(users.at(id), sum.g, step);
  }
  void Apply(Pair& pair, const double* g, int64_t step) const {
    if (adam) return pair.Adam(g, static_cast<double>(step));
    pair.Adagrad(g);
  }
};

// ---- the job ----

struct Case {
  const char* name;
  const char* optimizer;
  bool adam;
  // Minibatches of a version.
  int grads_to_wait;
  double clip_norm = 0;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class PsReplayTest : public ChaosTest,
                     public testing::WithParamInterface<Case> {
 protected:
  // Users differ, and nobody is quite on a line: gradients stay of a size where
  // float and double take the same way.
  void WriteData() {
    std::ofstream file(chaos_csv());
    // All digits of a float.
    file.precision(9);
    file << "id,x,y\n";
    for (int64_t i = 0; i < kRecords; ++i) {
      Record r;
      r.user = i * 7 % 50;
      r.x = static_cast<double>((i * 617 + 41) % 1009) / 504.5 - 1;
      r.y = static_cast<double>(r.user) / 10 + 3 * r.x +
            static_cast<double>(i % 13) / 6;
      r.x = static_cast<float>(r.x);
      r.y = static_cast<float>(r.y);
      file << i * 7 % 50 << "," << r.x << "," << r.y << "\n";
      replay_.data.push_back(r);
    }
  }
  static void Kill(Job& job, const std::string& pod) {
    pid_t pid = 0;
    for (const Json& event : job.Events("pod_started")) {
      if (absl::StartsWith(event.at("pod").get<std::string>(), pod)) {
        pid = event.at("pid");
      }
    }
    ASSERT_GT(pid, 0) << pod;
    kill(pid, SIGKILL);
  }
  static bool WaitForSteps(Job& job, int64_t steps) {
    LineFollower audit(job.audit());
    for (auto line = audit.Next(); line.has_value(); line = audit.Next()) {
      if (Json::parse(*line).at("step") >= steps) return true;
    }
    return false;
  }
  // Trains the reference in the order of the versions.
  void ReplayAudit(const std::string& path) {
    std::map<int64_t, std::vector<Range>> versions;
    for (const std::string& line : Lines(path)) {
      const Json json = Json::parse(line);
      const Range range(json.at("begin"), json.at("end"));
      ASSERT_LE(range.second - range.first, kMinibatch) << line;
      versions[json.at("step")].push_back(range);
    }
    for (const auto& [step, ranges] : versions) replay_.Train(ranges, step);
  }

  Replay replay_;
};

std::vector<float> FloatsOf(const checkpoint::NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, PsReplayTest,
    testing::Values(Case{"Adagrad", "Adagrad(lr=0.2)", false, 1},
                    Case{"Adam", "Adam(lr=0.02)", true, 1},
                    Case{"MeansOfTwo", "Adagrad(lr=0.2)", false, 2},
                    // One norm over dense values and rows, although no server
                    // has all of them.
                    Case{"Clipped", "Adagrad(lr=0.2,global_clipnorm=1)", false,
                         1, 1},
                    Case{"MeansOfTwoClipped",
                         "Adagrad(lr=0.2,global_clipnorm=1)", false, 2, 1}),
    [](const auto& info) { return info.param.name; });

TEST_P(PsReplayTest, TablesAreThoseOfTheAudit) {
  WriteData();
  replay_.adam = GetParam().adam;
  replay_.clip_norm = GetParam().clip_norm;
  const auto job =
      Train("replay",
            {"--distribution_strategy=ParameterServerStrategy",
             "--num_ps_pods=2", "--num_workers=2",
             absl::StrCat("--grads_to_wait=", GetParam().grads_to_wait),
             "--model_def=rows.custom_model",
             absl::StrCat("--optimizer=", GetParam().optimizer),
             "--model_params=pace=" + pace(), "--training_data=" + chaos_csv(),
             // Positions in the audit are records.
             "--shuffle=false", absl::StrCat("--minibatch_size=", kMinibatch),
             "--num_epochs=2", "--checkpoint_steps=50",
             "--checkpoint_dir=" + Path("checkpoints")});
  Walk();
  ASSERT_TRUE(WaitForSteps(*job, 15)) << job->Output();
  Kill(*job, "elasticdl-ps-replay-0");
  ASSERT_TRUE(WaitForSteps(*job, 30)) << job->Output();
  Kill(*job, "elasticdl-worker-replay-0");
  Kill(*job, "elasticdl-ps-replay-1");
  ASSERT_TRUE(WaitForSteps(*job, 50)) << job->Output();
  Go();
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  ASSERT_TRUE(ChaosLedgerIsExact(*job, 2)) << job->Output();
  ReplayAudit(job->audit());
  EXPECT_EQ(replay_.clipped > 0, GetParam().clip_norm > 0);

  const auto newest = checkpoint::Resolve(Path("checkpoints"));
  ASSERT_TRUE(newest.ok()) << newest.status();
  const auto loaded = checkpoint::Load(*newest);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->version, job->End().at("step"));
  ASSERT_EQ(loaded->variables.size(), 1u);
  const std::vector<float> weight = FloatsOf(loaded->variables[0]);
  for (size_t i : {0, 1}) {
    EXPECT_NEAR(weight.at(i), replay_.weight.value[i], 1e-4);
  }
  size_t rows = 0;
  for (const checkpoint::EmbeddingRows& part : loaded->embedding_tables) {
    const std::vector<float> values = FloatsOf(part.rows);
    for (size_t r = 0; r < part.ids.size(); ++r, ++rows) {
      ASSERT_EQ(replay_.users.count(part.ids[r]), 1u) << part.ids[r];
      const Pair& user = replay_.users.at(part.ids[r]);
      for (size_t i : {0, 1}) {
        EXPECT_NEAR(values.at(2 * r + i), user.value[i], 1e-4)
            << "user " << part.ids[r];
      }
      // The slots, too; their names are sorted.
      const std::vector<float> first = FloatsOf(part.slots.at(0));
      for (size_t i : {0, 1}) {
        EXPECT_NEAR(first.at(2 * r + i), user.m[i], 1e-3 + 1e-4 * user.m[i])
            << "user " << part.ids[r];
      }
    }
  }
  EXPECT_EQ(rows, replay_.users.size());
}

}  // namespace
}  // namespace elasticdl::test
