// A replica whose process is killed at any moment of its steps: who takes over
// its memory has the bits of a training without deaths.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "buffer_sync.h"
#include "elasticdl/common/failpoint.h"
#include "elasticdl/keep/kept_reader.h"
#include "members.h"
#include "replica.h"

namespace elasticdl::worker::test {
namespace {

// Numbers for five chunks of an update, some that are not trained, and buffers
// of types that members keep level and of one that they do not.
class WideNetwork : public model::Network {
 public:
  const Tensors& parameters() const override { return parameters_; }
  const Tensors& buffers() const override { return buffers_; }
  void Train() override {}
  void Eval() override {}
  absl::StatusOr<Outputs> Forward(const Features&) override {
    return Outputs(parameters_[0].second * 2);
  }
  const std::vector<ShardedTable>& tables() const override { return tables_; }
  void SetRowSource(RowSource*) override {}
  absl::StatusOr<std::string> Serialize() const override { return ""; }

 private:
  const Tensors parameters_ = {
      {"w", torch::linspace(-1, 1, 280000).set_requires_grad(true)},
      {"fixed", torch::rand({33})},
      {"v", torch::linspace(2, 3, 2000).set_requires_grad(true)}};
  const Tensors buffers_ = {{"mean", torch::zeros({7})},
                            {"count", torch::zeros({1}, torch::kInt64)},
                            {"mask", torch::zeros({5}, torch::kUInt8)}};
  const std::vector<ShardedTable> tables_;
};

class WideModel : public FaultyModel {
 public:
  explicit WideModel(std::string optimizer)
      : FaultyModel(CountedData()), optimizer_(std::move(optimizer)) {}
  absl::StatusOr<std::unique_ptr<model::Network>> CreateNetwork(
      const model::NetworkOptions& options) override {
    torch::manual_seed(options.seed);
    return std::make_unique<WideNetwork>();
  }
  absl::StatusOr<OptimizerSpec> Optimizer() override {
    return OptimizerSpec::Parse(optimizer_);
  }

 private:
  const std::string optimizer_;
};

// A replica with what a trainer has of it.
struct Trained {
  Trained(model::Model& model, bool keep) {
    Execution execution;
    execution.keep = keep;
    auto made = Replica::Create(model, {1}, /*with_optimizer=*/true, execution);
    EXPECT_TRUE(made.ok()) << made.status();
    replica = *std::move(made);
    EXPECT_EQ(replica->kept() != nullptr, keep);
    buffers = std::make_unique<BufferSync>(
        replica->buffers(),
        [this](const torch::Tensor& t) { return replica->RememberBuffer(t); });
    for (size_t i = 0; i < replica->parameters().size(); ++i) {
      noise.push_back(static_cast<float>(i % 97) * -3);
    }
  }
  keep::Facts FactsOf(int64_t step) const {
    return {step, 3, 0.1 / static_cast<double>(step + 1), {{4, step * 8}}};
  }
  void Publish() { replica->kept()->Publish(FactsOf(replica->step())); }
  // What forward, backward and the sum do, then the update.
  void Step() {
    const int64_t step = replica->step() + 1;
    const auto x = static_cast<float>(step);
    FlatParameters& flat = replica->parameters();
    float* const gradients = flat.gradients();
    // Quickly, so that the update takes most of the time.
    for (size_t i = 0; i < flat.size(); ++i) gradients[i] = noise[i] + x;
    *replica->buffers()[0].second.data_ptr<float>() += x;
    *replica->buffers()[1].second.data_ptr<int64_t>() = step;
    const keep::Facts facts = FactsOf(step);
    if (replica->kept() != nullptr) replica->kept()->Plan(facts);
    replica->ApplyGradients(facts.learning_rate);
    buffers->Commit();
    replica->EndStep();
  }

  std::unique_ptr<Replica> replica;
  std::unique_ptr<BufferSync> buffers;
  std::vector<float> noise;
};

class ReplicaKeptTest : public testing::TestWithParam<const char*> {
 protected:
  // Digests of the states after so many steps.
  std::vector<uint32_t> Straight(int64_t steps) {
    Trained plain(model_, /*keep=*/false);
    std::vector<uint32_t> digests = {*plain.replica->StateDigest()};
    for (int64_t step = 1; step <= steps; ++step) {
      plain.Step();
      digests.push_back(*plain.replica->StateDigest());
    }
    return digests;
  }
  // Takes over what is left, trains on to the last step.
  void TakeOver(Trained& owner, const std::vector<uint32_t>& straight) {
    const auto reader =
        keep::KeptReader::Open(Fd(dup(owner.replica->kept()->fd())));
    ASSERT_TRUE(reader.ok()) << reader.status();
    finished_ += reader->update().open ? 1 : 0;
    torn_ += reader->update().torn > 0 ? 1 : 0;
    Trained heir(model_, /*keep=*/finished_ % 2 == 0);
    ASSERT_TRUE(heir.replica->RestoreKept(*reader).ok());
    heir.buffers->Commit();
    const auto step = static_cast<size_t>(heir.replica->step());
    EXPECT_EQ(reader->facts().totals[0].second, static_cast<int64_t>(8 * step));
    ASSERT_LT(step, straight.size());
    EXPECT_EQ(*heir.replica->StateDigest(), straight[step]) << step;
    for (size_t i = step + 1; i < straight.size() && i < step + 4; ++i) {
      heir.Step();
      EXPECT_EQ(*heir.replica->StateDigest(), straight[i]) << i;
    }
  }

  WideModel model_{GetParam()};
  int finished_ = 0;
  int torn_ = 0;
};

TEST_P(ReplicaKeptTest, TrainsTheSameWithAndWithoutIt) {
  const std::vector<uint32_t> straight = Straight(5);
  Trained kept(model_, /*keep=*/true);
  kept.Publish();
  for (size_t step = 1; step <= 5; ++step) {
    kept.Step();
    EXPECT_EQ(*kept.replica->StateDigest(), straight[step]);
    EXPECT_TRUE(kept.replica->kept()->whole());
  }
}

TEST_P(ReplicaKeptTest, KilledAtEveryChunk) {
  const std::vector<uint32_t> straight = Straight(6);
  // Five chunks a step; the last visit is not reached.
  for (int visit = 1; visit <= 16; ++visit) {
    Trained owner(model_, /*keep=*/true);
    owner.Publish();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const absl::Status armed =
          InitFailpoints("worker.update=kill@" + std::to_string(visit));
      for (int step = 0; armed.ok() && step < 3; ++step) owner.Step();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WIFSIGNALED(status), visit <= 15);
    TakeOver(owner, straight);
  }
  EXPECT_EQ(finished_, 15);
}

// A page of one of the arrays cannot be written: the process dies of that in
// the middle of a vector's update, when other arrays have changed.
TEST_P(ReplicaKeptTest, KilledAtAnyPageOfAnyArray) {
  const std::vector<uint32_t> straight = Straight(3);
  constexpr size_t kPage = 4096;
  constexpr size_t kPages = 282000 * sizeof(float) / kPage;
  for (size_t page = 0; page <= kPages; page += 17) {
    Trained owner(model_, /*keep=*/true);
    owner.Publish();
    owner.Step();
    std::vector<const float*> arrays = owner.replica->slots();
    arrays.push_back(owner.replica->parameters().values());
    const auto* const array =
        reinterpret_cast<const char*>(arrays[page % arrays.size()]);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      if (mprotect(const_cast<char*>(array) + page * kPage, kPage, PROT_READ) ==
          0) {
        owner.Step();
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << page;
    TakeOver(owner, straight);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(torn_, 16);
}

TEST_P(ReplicaKeptTest, KilledAtRandomMoments) {
  const char* const given = getenv("ELASTICDL_TEST_SEED");
  const uint32_t seed =
      given != nullptr ? static_cast<uint32_t>(std::stoul(given)) : 1;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int64_t kSteps = 100;
  const std::vector<uint32_t> straight = Straight(kSteps);
  for (int trial = 0; trial < 40; ++trial) {
    Trained owner(model_, /*keep=*/true);
    owner.Publish();
    const volatile float* const buffer =
        owner.replica->buffers()[0].second.data_ptr<float>();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t step = 0; step < kSteps; ++step) owner.Step();
      _exit(0);
    }
    // From its first step on, any moment.
    while (*buffer == 0 && waitpid(child, nullptr, WNOHANG) == 0) {
    }
    volatile uint32_t spin = random() % 4000000;
    while (spin > 0) spin = spin - 1;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    TakeOver(owner, straight);
    if (HasFatalFailure()) return;
  }
  printf("%d of 40 in an update, %d of them in a block\n", finished_, torn_);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ReplicaKeptTest,
    testing::Values("SGD(lr=0.1)", "SGD(lr=0.1,momentum=0.9,nesterov=1)",
                    "Adam(lr=0.01)", "Adam(lr=0.01,amsgrad=1)", "Ftrl(lr=0.1)",
                    "Ftrl(lr=0.1,learning_rate_power=-0.7)", "RMSprop(lr=0.01)",
                    "Adagrad(lr=0.1)", "SGD(lr=0.1,global_clipnorm=1)"),
    [](const auto& info) { return "Number" + std::to_string(info.index); });

TEST(ReplicaKeptRefusalTest, AnotherModelIsRefused) {
  WideModel adam("Adam(lr=0.1)");
  WideModel sgd("SGD(lr=0.1)");
  Trained owner(adam, /*keep=*/true);
  owner.Publish();
  Trained heir(sgd, /*keep=*/true);
  const uint32_t before = *heir.replica->StateDigest();
  const auto reader =
      keep::KeptReader::Open(Fd(dup(owner.replica->kept()->fd())));
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(heir.replica->RestoreKept(*reader)));
  EXPECT_EQ(*heir.replica->StateDigest(), before);
}

TEST(ReplicaKeptRefusalTest, WhatReplacesTheStateIsNotKept) {
  WideModel model("SGD(lr=0.1)");
  Trained owner(model, /*keep=*/true);
  owner.Publish();
  EXPECT_TRUE(owner.replica->kept()->whole());
  ASSERT_TRUE(owner.replica->StartAnew().ok());
  EXPECT_FALSE(owner.replica->kept()->whole());
  owner.Publish();
  owner.replica->SetPart(elastic::StateStream::Part());
  EXPECT_FALSE(owner.replica->kept()->whole());
}

}  // namespace
}  // namespace elasticdl::worker::test
