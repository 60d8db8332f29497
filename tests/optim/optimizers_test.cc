// Every optimizer against a scalar reference in double precision.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elasticdl/optim.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "optim/reference.h"
#include "spec.h"

namespace elasticdl::optim {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kSeed = 20240607;

std::unique_ptr<Optimizer> MustCreate(const std::string& text) {
  const absl::StatusOr<OptimizerSpec> spec = OptimizerSpec::Parse(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  absl::StatusOr<std::unique_ptr<Optimizer>> made = Optimizer::Create(*spec);
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(made).value();
}

test::Args FullArgs(const std::string& text) {
  return internal::WithDefaults(*OptimizerSpec::Parse(text));
}

// A parameter with its slots; the arrays begin `shift` elements into their
// memory and are followed by guards.
struct State {
  State(const Optimizer& optimizer, size_t n, size_t shift)
      : n(n), shift(shift) {
    arrays.assign(2 + optimizer.slot_names().size(),
                  std::vector<float>(shift + n + 1, kGuard));
    for (size_t s = 0; s < optimizer.slot_names().size(); ++s) {
      std::fill_n(slot(s), n, optimizer.initial_slot_value(s));
    }
  }
  static constexpr float kGuard = 12345.0f;
  float* param() { return arrays[0].data() + shift; }
  float* grad() { return arrays[1].data() + shift; }
  float* slot(size_t s) { return arrays[2 + s].data() + shift; }
  std::vector<float*> slots() {
    std::vector<float*> all;
    for (size_t s = 2; s < arrays.size(); ++s) {
      all.push_back(arrays[s].data() + shift);
    }
    return all;
  }
  bool GuardsIntact() const {
    for (const std::vector<float>& array : arrays) {
      if (array.back() != kGuard) return false;
      for (size_t i = 0; i < shift; ++i) {
        if (array[i] != kGuard) return false;
      }
    }
    return true;
  }
  size_t n;
  size_t shift;
  std::vector<std::vector<float>> arrays;
};

class OptimizerTest : public ::testing::TestWithParam<const char*> {};

// `relative` of the larger of the value and 1.
void ExpectNear(float value, double reference, double relative,
                const std::string& what) {
  ASSERT_TRUE(std::isfinite(value)) << what;
  ASSERT_NEAR(value, reference, relative * std::max(1.0, std::fabs(reference)))
      << what;
}

TEST_P(OptimizerTest, MatchesReferenceForEverySizeAndAlignment) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const std::unique_ptr<Optimizer> optimizer = MustCreate(GetParam());
  const test::Args args = FullArgs(GetParam());
  const std::string type = OptimizerSpec::Parse(GetParam())->type;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal;
  for (size_t n = 0; n <= 37; ++n) {
    State state(*optimizer, n, n % 5);
    for (size_t i = 0; i < n; ++i) state.param()[i] = normal(random);
    std::vector<double> p(state.param(), state.param() + n);
    std::vector<std::vector<double>> s(n);
    for (size_t i = 0; i < n; ++i) {
      for (float* slot : state.slots()) s[i].push_back(slot[i]);
    }
    for (int64_t step = 1; step <= 5; ++step) {
      for (size_t i = 0; i < n; ++i) state.grad()[i] = normal(random);
      optimizer->Apply(state.param(), state.grad(), state.slots().data(), n,
                       optimizer->learning_rate(), step);
      for (size_t i = 0; i < n; ++i) {
        test::ReferenceStep(type, args, p[i], state.grad()[i], s[i],
                            optimizer->learning_rate(), step);
        ExpectNear(state.param()[i], p[i], 2e-5,
                   testing::PrintToString(std::make_pair(n, i)));
        for (size_t k = 0; k < s[i].size(); ++k) {
          ExpectNear(state.slot(k)[i], s[i][k], 2e-5,
                     optimizer->slot_names()[k]);
        }
      }
    }
    EXPECT_TRUE(state.GuardsIntact()) << "n = " << n;
  }
}

// Minimises (p - target)² for many steps with a changing learning rate, and
// stays near to the reference all the way.
TEST_P(OptimizerTest, StaysNearReferenceOverManySteps) {
  constexpr size_t kN = 13;
  const std::unique_ptr<Optimizer> optimizer = MustCreate(GetParam());
  const test::Args args = FullArgs(GetParam());
  const std::string type = OptimizerSpec::Parse(GetParam())->type;
  State state(*optimizer, kN, 1);
  std::vector<double> p(kN);
  std::vector<std::vector<double>> s(kN);
  for (size_t i = 0; i < kN; ++i) {
    p[i] = state.param()[i] = static_cast<float>(i) * 0.25f - 1.5f;
    for (float* slot : state.slots()) s[i].push_back(slot[i]);
  }
  for (int64_t step = 1; step <= 400; ++step) {
    const double lr = optimizer->learning_rate() / (step > 200 ? 4 : 1);
    for (size_t i = 0; i < kN; ++i) {
      state.grad()[i] = 2 * (state.param()[i] - 0.3f);
    }
    for (size_t i = 0; i < kN; ++i) {
      test::ReferenceStep(type, args, p[i], state.grad()[i], s[i], lr, step);
    }
    optimizer->Apply(state.param(), state.grad(), state.slots().data(), kN, lr,
                     step);
    for (size_t i = 0; i < kN; ++i) {
      ExpectNear(state.param()[i], p[i], 2e-3, "step " + std::to_string(step));
    }
  }
}

// Defect 10 of the original: slots that began with random values made NaN.
TEST_P(OptimizerTest, NoNanFromZeroOrExtremeGradients) {
  const std::unique_ptr<Optimizer> optimizer = MustCreate(GetParam());
  const float values[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 1e15f, -1e15f, 1.0f};
  constexpr size_t kN = 7;
  State state(*optimizer, kN, 0);
  for (size_t s = 0; s < state.slots().size(); ++s) {
    EXPECT_GE(optimizer->initial_slot_value(s), 0.0f);
  }
  for (int64_t step = 1; step <= 50; ++step) {
    for (size_t i = 0; i < kN; ++i) {
      if (step == 1) state.param()[i] = 0.05f * static_cast<float>(i);
      // Zero after half of the steps.
      state.grad()[i] = step <= 25 ? values[i] : 0.0f;
    }
    optimizer->Apply(state.param(), state.grad(), state.slots().data(), kN,
                     optimizer->learning_rate(), step);
    for (size_t i = 0; i < kN; ++i) {
      ASSERT_FALSE(std::isnan(state.param()[i])) << "step " << step << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerTest,
    ::testing::Values(
        "SGD(lr=0.05)", "SGD(lr=0.05,weight_decay=0.01)",
        "SGD(lr=0.01,momentum=0.9)", "SGD(lr=0.01,momentum=0.9,nesterov=True)",
        "SGD(lr=0.01,momentum=0.9,dampening=0.5,weight_decay=0.1)",
        "Adam(lr=0.01)", "Adam(lr=0.01,amsgrad=True)",
        "Adam(lr=0.01,beta1=0.8,beta2=0.99,eps=1e-7,weight_decay=0.1)",
        "AdamW(lr=0.01)", "AdamW(lr=0.01,amsgrad=True,weight_decay=0.2)",
        "Adagrad(lr=0.1)", "Adagrad(lr=0.1,initial_accumulator_value=0.1)",
        "Adagrad(lr=0.1,lr_decay=0.01,eps=1e-7,weight_decay=0.1)",
        "RMSprop(lr=0.01)", "RMSprop(lr=0.001,momentum=0.9)",
        "RMSprop(lr=0.001,centered=True,eps=0.1)",
        "RMSprop(lr=0.001,centered=True,eps=0.1,momentum=0.5,weight_decay=0.1)",
        "Adadelta(lr=1)", "Adadelta(lr=0.5,rho=0.95,weight_decay=0.1)",
        "Adamax(lr=0.01)", "Adamax(lr=0.01,weight_decay=0.1)", "Nadam(lr=0.01)",
        "Nadam(lr=0.01,momentum_decay=0,weight_decay=0.1)", "Ftrl(lr=0.1)",
        "Ftrl(lr=0.1,learning_rate_power=-0.7,beta=0.1)",
        "Ftrl(lr=0.1,l1=0.1,l2=0.05,l2_shrinkage=0.01,beta=0.2)"));

TEST(OptimizersTest, SlotNamesFollowTheArguments) {
  EXPECT_THAT(MustCreate("SGD")->slot_names(), ElementsAre());
  EXPECT_THAT(MustCreate("SGD(momentum=0.9)")->slot_names(),
              ElementsAre("momentum"));
  EXPECT_THAT(MustCreate("Adam")->slot_names(), ElementsAre("m", "v"));
  EXPECT_THAT(MustCreate("Adam(amsgrad=True)")->slot_names(),
              ElementsAre("m", "v", "vhat"));
  EXPECT_THAT(MustCreate("RMSprop(momentum=0.9,centered=1)")->slot_names(),
              ElementsAre("rms", "mg", "momentum"));
  EXPECT_EQ(MustCreate("Adagrad(initial_accumulator_value=0.1)")
                ->initial_slot_value(0),
            0.1f);
  EXPECT_EQ(MustCreate("Adagrad")->initial_slot_value(0), 0.0f);
}

TEST(OptimizersTest, CreateRefusesWhatParseRefuses) {
  EXPECT_EQ(Optimizer::Create(OptimizerSpec{"Sgdd", {}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Optimizer::Create(OptimizerSpec{"SGD", {{"beta1", 1}}}).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      Optimizer::Create(OptimizerSpec{"sgd", {{"learning_rate", 1}}}).ok());
}

TEST(OptimizersTest, NadamScheduleStaysRightFarOut) {
  // beta1 so near to 1 that the table of products is used to its end.
  const char* text = "Nadam(lr=0.01,beta1=0.9999)";
  const std::unique_ptr<Optimizer> optimizer = MustCreate(text);
  for (const int64_t step : {int64_t{1}, int64_t{60000}, int64_t{100000}}) {
    State state(*optimizer, 1, 0);
    state.param()[0] = 1.0f;
    state.grad()[0] = 0.5f;
    double p = 1.0;
    std::vector<double> s = {0, 0};
    test::ReferenceStep("Nadam", FullArgs(text), p, 0.5, s, 0.01, step);
    optimizer->Apply(state.param(), state.grad(), state.slots().data(), 1, 0.01,
                     step);
    EXPECT_NEAR(state.param()[0], p, 1e-6) << step;
  }
}

}  // namespace
}  // namespace elasticdl::optim
