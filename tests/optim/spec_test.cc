// Optimizer specs: text form, aliases, errors.
#include "spec.h"

#include <string>

#include "absl/status/status.h"
#include "elasticdl/optim.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace elasticdl::optim {
namespace {

using ::testing::HasSubstr;

OptimizerSpec MustParse(const std::string& text) {
  absl::StatusOr<OptimizerSpec> spec = OptimizerSpec::Parse(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : OptimizerSpec{};
}

TEST(OptimizerSpecTest, ParsesNameAndArguments) {
  const OptimizerSpec spec = MustParse("SGD(lr=0.1, momentum=0.9)");
  EXPECT_EQ(spec.type, "SGD");
  EXPECT_EQ(spec.args.at("lr"), 0.1);
  EXPECT_EQ(spec.args.at("momentum"), 0.9);
  EXPECT_EQ(spec.ToString(), "SGD(lr=0.1,momentum=0.9)");
  EXPECT_EQ(MustParse("SGD").ToString(), "SGD");
  EXPECT_EQ(MustParse("SGD()").ToString(), "SGD");
}

TEST(OptimizerSpecTest, AcceptsKerasAndTorchNames) {
  EXPECT_EQ(MustParse("tf.keras.optimizers.Adam(learning_rate=0.01;beta_1=0.8;"
                      "beta_2=0.9;epsilon=1e-07;amsgrad=True;)"),
            MustParse("adam(lr=0.01,beta1=0.8,beta2=0.9,eps=1e-7,amsgrad=1)"));
  EXPECT_EQ(MustParse("RMSprop(rho=0.9)"), MustParse("torch.optim.RMSprop("
                                                     "alpha=0.9)"));
  EXPECT_EQ(MustParse("Adadelta(rho=0.9)").args.count("rho"), 1u);
  EXPECT_EQ(MustParse("NAdam").type, "Nadam");
  EXPECT_EQ(MustParse("SGD(nesterov=False)").args.at("nesterov"), 0);
}

TEST(OptimizerSpecTest, RoundTripsEveryOptimizerAndArgument) {
  for (const internal::Entry& entry : internal::Table()) {
    OptimizerSpec spec;
    spec.type = entry.type;
    for (const internal::Argument& argument : entry.arguments) {
      spec.args[argument.name] = argument.default_value;
    }
    EXPECT_EQ(MustParse(spec.ToString()), spec) << spec.ToString();
  }
  const OptimizerSpec odd{"SGD", {{"lr", 0.1 + 0.2}}};
  EXPECT_EQ(MustParse(odd.ToString()), odd);
}

TEST(OptimizerSpecTest, MakersAreCanonical) {
  EXPECT_EQ(Sgd(0.1).ToString(), "SGD(lr=0.1)");
  EXPECT_EQ(Sgd(0.1, 0.9, true).ToString(),
            "SGD(lr=0.1,momentum=0.9,nesterov=1)");
  EXPECT_EQ(Adam().ToString(), "Adam(lr=0.001)");
  EXPECT_EQ(AdamW(0.01, 0.1).ToString(), "AdamW(lr=0.01,weight_decay=0.1)");
  EXPECT_EQ(Adagrad().ToString(), "Adagrad(epsilon=1e-07,lr=0.01)");
  EXPECT_EQ(RmsProp().ToString(), "RMSprop(lr=0.01)");
}

struct BadCase {
  const char* text;
  const char* message;
};

TEST(OptimizerSpecTest, ErrorsNameWhatIsWrong) {
  const BadCase cases[] = {
      {"SDG(lr=0.1)", "did you mean SGD?"},
      {"Adma", "did you mean Adam?"},
      {"Lion", "known: SGD, Adam"},
      {"", "unknown optimizer"},
      {"SGD(momentun=0.9)", "did you mean momentum?"},
      {"SGD(beta1=0.9)", "unknown argument 'beta1'; known: lr, momentum"},
      {"SGD(lr=fast)", "'fast' is not a number"},
      {"SGD(0.1)", "not name=value"},
      {"SGD(lr=0.1", "')' is missing"},
      {"SGD(lr=-1)", "lr=-1 must not be negative"},
      {"SGD(lr=nan)", "must be finite"},
      {"Adam(beta1=1)", "beta1=1 must be in [0, 1)"},
      {"Adam(amsgrad=2)", "must be True or False"},
      {"SGD(lr=0.1,learning_rate=0.2)", "given twice"},
      {"SGD(lr=0.1,lr=0.2)", "given twice"},
      {"SGD(lr=0.1,nesterov=True)", "nesterov needs momentum"},
  };
  for (const BadCase& bad : cases) {
    const absl::StatusOr<OptimizerSpec> spec = OptimizerSpec::Parse(bad.text);
    ASSERT_FALSE(spec.ok()) << bad.text;
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(bad.message))
        << bad.text;
  }
}

}  // namespace
}  // namespace elasticdl::optim
