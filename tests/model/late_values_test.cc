// Initial values that are made later: the same bits as those that are made at
// once, whatever custom_model does.
#include "late_values.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace elasticdl::model {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

// Small tensors of these tests have less.
constexpr int64_t kLeastBytes = 4096;

// A module whose tensors a function makes.
struct Net : nn::Module {
  std::vector<Tensor> unregistered;
  double number = 0;
};
using Make = std::function<void(Net&)>;

struct Made {
  std::shared_ptr<Net> net = std::make_shared<Net>();
  // The random numbers that follow.
  Tensor after;
};

Made AtOnce(const Make& make, uint64_t seed = 7) {
  torch::manual_seed(seed);
  Made made;
  make(*made.net);
  made.after = torch::rand({700});
  return made;
}

struct MadeLate : Made {
  std::optional<LateValues> values;
};

MadeLate Late(const Make& make, uint64_t seed = 7) {
  torch::manual_seed(seed);
  MadeLate made;
  LateScope scope(kLeastBytes);
  make(*made.net);
  made.values = scope.Finish(*made.net);
  made.after = torch::rand({700});
  return made;
}

void ExpectEqual(Net& expected, Net& actual) {
  const auto compare = [](const auto& first, const auto& second) {
    ASSERT_EQ(first.size(), second.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(torch::equal(first[i].value(), second[i].value()))
          << first[i].key();
      EXPECT_EQ(first[i].value().requires_grad(),
                second[i].value().requires_grad());
    }
  };
  compare(expected.named_parameters(), actual.named_parameters());
  compare(expected.named_buffers(), actual.named_buffers());
  ASSERT_EQ(expected.unregistered.size(), actual.unregistered.size());
  for (size_t i = 0; i < expected.unregistered.size(); ++i) {
    EXPECT_TRUE(torch::equal(expected.unregistered[i], actual.unregistered[i]))
        << i;
  }
  EXPECT_EQ(expected.number, actual.number);
}

// So many parameters are late, and in the end everything is as ever.
void ExpectSame(const Make& make, size_t num_late) {
  const Made expected = AtOnce(make);
  MadeLate actual = Late(make);
  ASSERT_TRUE(actual.values.has_value());
  EXPECT_EQ(actual.values->size(), num_late);
  EXPECT_TRUE(torch::equal(expected.after, actual.after));
  actual.values->Make();
  EXPECT_EQ(actual.values->size(), 0u);
  ExpectEqual(*expected.net, *actual.net);
  // It takes no random numbers, either.
  torch::manual_seed(3);
  const Tensor numbers = torch::rand({5});
  MadeLate again = Late(make);
  torch::manual_seed(3);
  again.values->Make();
  EXPECT_TRUE(torch::equal(torch::rand({5}), numbers));
}

TEST(SkipNumbersTest, IsTheSameAsTakingThem) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  at::mt19937 engine(seed);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<int64_t>(random() % 2000);
    at::mt19937_data_pod skipped = engine.data();
    SkipNumbers(skipped, count);
    for (int64_t i = 0; i < count; ++i) engine();
    at::mt19937 other;
    other.set_data(skipped);
    ASSERT_TRUE(other.is_valid());
    for (int i = 0; i < 1300; ++i) ASSERT_EQ(engine(), other());
  }
}

TEST(LateValuesTest, LayersOfLibtorch) {
  ExpectSame(
      [](Net& net) {
        net.register_module("linear", nn::Linear(100, 77));
        net.register_module("dropout", nn::Dropout());
        net.register_module("no_bias",
                            nn::Linear(nn::LinearOptions(33, 41).bias(false)));
        net.register_module("norm", nn::BatchNorm1d(2000));
        net.register_module("layer_norm",
                            nn::LayerNorm(nn::LayerNormOptions({1500})));
        net.register_module("small", nn::Linear(3, 2));
      },
      // Constants, too: four of norm and layer_norm.
      6);
  ExpectSame(
      [](Net& net) {
        net.register_module("conv", nn::Conv2d(nn::Conv2dOptions(16, 33, 3)));
        net.register_module("embedding", nn::Embedding(123, 17));
        net.register_module(
            "padded",
            nn::Embedding(nn::EmbeddingOptions(200, 7).padding_idx(-1)));
        net.register_module("bag", nn::EmbeddingBag(100, 11));
      },
      4);
  ExpectSame(
      [](Net& net) {
        net.register_module("lstm",
                            nn::LSTM(nn::LSTMOptions(40, 50).num_layers(2)));
        net.register_module("attention", nn::MultiheadAttention(64, 4));
      },
      6);
}

TEST(LateValuesTest, LayersThatAreCopies) {
  // It copies the layer that it is given.
  ExpectSame(
      [](Net& net) {
        net.register_module(
            "encoder",
            nn::TransformerEncoder(nn::TransformerEncoderLayer(32, 2), 2));
      },
      0);
}

TEST(LateValuesTest, EverySizeOfANormalDistribution) {
  for (int64_t extra = 0; extra < 34; ++extra) {
    SCOPED_TRACE(extra);
    ExpectSame(
        [extra](Net& net) {
          Tensor weight =
              net.register_parameter("w", torch::empty({1024 + extra}));
          nn::init::normal_(weight, 0.5, 0.1);
        },
        1);
  }
}

TEST(LateValuesTest, OwnInitialization) {
  ExpectSame(
      [](Net& net) {
        const torch::NoGradGuard no_grad;
        nn::Linear a(100, 40);
        nn::init::xavier_normal_(a->weight, 0.3);
        nn::init::constant_(a->bias, 0.25);
        net.register_module("a", a);
        nn::Conv2d b(nn::Conv2dOptions(40, 40, 3));
        nn::init::kaiming_normal_(b->weight);
        net.register_module("b", b);
        // In pieces.
        Tensor c = net.register_parameter("c", torch::empty({4, 1000}));
        for (int64_t i = 0; i < 4; ++i) {
          c[i].uniform_(static_cast<double>(-i), static_cast<double>(i));
        }
        c.narrow(0, 1, 2).normal_(3, 0);
        c.data()[3].zero_();
        Tensor d = net.register_parameter("d", torch::empty({40, 40}));
        d.zero_();
        net.register_parameter("e", torch::empty({2000}).uniform_(), false);
      },
      5);
}

TEST(LateValuesTest, WhatIsReadIsMade) {
  ExpectSame(
      [](Net& net) {
        const torch::NoGradGuard no_grad;
        nn::Linear read(100, 40);
        net.register_module("read", read);
        net.number = read->weight.norm().item<double>();
        nn::Linear scaled(100, 40);
        net.register_module("scaled", scaled);
        scaled->weight.mul_(0.5);
        nn::Linear orthogonal(50, 40);
        nn::init::orthogonal_(orthogonal->weight);
        net.register_module("orthogonal", orthogonal);
        nn::Linear copied(100, 40);
        copied->weight.copy_(scaled->weight);
        net.register_module("copied", copied);
        // Numbers that are not one after the other.
        Tensor columns =
            net.register_parameter("columns", torch::empty({40, 40}));
        columns.uniform_();
        columns.narrow(1, 3, 5).normal_();
        nn::Linear late(100, 40);
        net.register_module("late", late);
        torch::cat({torch::empty({2000}).uniform_(), torch::rand({3})});
      },
      1);
}

TEST(LateValuesTest, WhatIsNoParameterIsMade) {
  ExpectSame(
      [](Net& net) {
        net.register_buffer("buffer", torch::empty({2000}).normal_());
        net.unregistered.push_back(torch::empty({2000}).uniform_());
        net.unregistered.push_back(torch::randn({3000}));
        // Dropped, but the numbers are taken.
        torch::empty({5000}).uniform_();
        net.register_module("late", nn::Linear(100, 40));
        net.unregistered.push_back(torch::rand({9}));
      },
      1);
}

TEST(LateValuesTest, SharedMemoryIsMade) {
  ExpectSame(
      [](Net& net) {
        // One tensor twice.
        nn::Linear first(60, 60);
        net.register_module("first", first);
        net.register_parameter("again", first->weight);
        // Two tensors of one memory.
        const Tensor both = torch::empty({2, 2000}).uniform_();
        net.register_parameter("upper", both[0].detach());
        net.register_parameter("lower", both[1].detach());
        // A view that somebody keeps.
        nn::Linear viewed(60, 60);
        net.register_module("viewed", viewed);
        net.unregistered.push_back(viewed->weight.detach()[3]);
      },
      0);
}

TEST(LateValuesTest, OwnGeneratorsAreNotSkipped) {
  ExpectSame(
      [](Net& net) {
        const torch::NoGradGuard no_grad;
        at::Generator own = at::detail::createCPUGenerator(5);
        Tensor a = net.register_parameter("a", torch::empty({2000}));
        a.uniform_(0, 1, own);
        Tensor b = net.register_parameter("b", torch::empty({2000}));
        b.normal_(0, 1);
        // From the start.
        torch::manual_seed(4);
        Tensor c = net.register_parameter("c", torch::empty({2000}));
        c.normal_(0, 1);
      },
      2);
}

TEST(LateValuesTest, MemoryThatIsUsedByPointersIsNoticed) {
  for (const bool write : {false, true}) {
    const MadeLate made = Late([write](Net& net) {
      nn::Linear linear(2000, 100);
      auto* const values = linear->weight.data_ptr<float>();
      if (write) {
        values[150000] = 3;
      } else {
        net.number = values[150000];
      }
      net.register_module("linear", linear);
    });
    EXPECT_FALSE(made.values.has_value()) << write;
  }
}

TEST(LateValuesTest, TheValuesFollowTheParameters) {
  const Make make = [](Net& net) {
    net.register_module("linear", nn::Linear(100, 40));
    net.register_parameter("fixed", torch::empty({2000}).normal_(), false);
  };
  const Made expected = AtOnce(make);
  MadeLate actual = Late(make);
  ASSERT_EQ(actual.values->size(), 2u);
  EXPECT_EQ(actual.values->bytes(), (4000 + 2000) * 4);
  Tensor flat = torch::full({10000}, -1.0);
  int64_t used = 7;
  for (auto& item : actual.net->named_parameters()) {
    Tensor& tensor = item.value();
    Tensor moved = flat.narrow(0, used, tensor.numel()).view(tensor.sizes());
    used += tensor.numel();
    // As whoever adopts it does.
    moved.copy_(tensor.detach());
    tensor.set_data(moved);
  }
  actual.values->Make();
  ExpectEqual(*expected.net, *actual.net);
  EXPECT_EQ(flat[6].item<float>(), -1);
  EXPECT_EQ(flat[used].item<float>(), -1);
}

TEST(LateValuesTest, ErrorsAreTheSame) {
  const std::vector<Make> wrong = {
      [](Net&) { torch::empty({2000}).normal_(0, -1); },
      [](Net&) { torch::empty({2000}).uniform_(1, 0); },
      [](Net&) { torch::empty({2000}).fill_(1e300); },
      [](Net& net) {
        net.register_parameter("w", torch::empty({2000})).uniform_();
      },
  };
  const auto error_of = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string expected = error_of([&] { AtOnce(wrong[i]); });
    EXPECT_NE(expected, "none");
    EXPECT_EQ(error_of([&] { Late(wrong[i]); }), expected);
  }
  // The scope is over.
  ExpectSame([](Net& net) { net.register_module("a", nn::Linear(60, 60)); }, 1);
}

}  // namespace
}  // namespace elasticdl::model
