// `elasticdl ckpt`: exit codes and output of its commands on real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/test_snapshot.h"
#include "ckpt/ckpt.h"
#include "ckpt/compare.h"
#include "elasticdl/checkpoint/checkpoint.h"
#include "nlohmann/json.hpp"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using checkpoint::NamedTensor;
using checkpoint::OwnedSnapshot;
using checkpoint::OwnedTableRows;
using checkpoint::test::TestSnapshot;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CkptCommandTest : public testing::Test {
 protected:
  int Run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = RunCkptCommands(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  // Rows `first` to 9 of a table.
  static OwnedSnapshot Make(int64_t first = 0) {
    OwnedSnapshot owned = OwnedSnapshot::Copy(TestSnapshot(5).get());
    // Random bytes may be no numbers.
    for (auto* tensors : {&owned.snapshot.variables, &owned.snapshot.slots}) {
      for (NamedTensor& tensor : *tensors) {
        tensor.bytes = owned.Keep(
            std::vector<float>(tensor.bytes.size() / sizeof(float), 1.0f));
      }
    }
    auto& range = *owned.snapshot.ledger->add_outstanding();
    range.set_begin(64);
    range.set_end(96);
    OwnedTableRows rows;
    rows.name = "items";
    rows.dim = 2;
    rows.slots.push_back({"m", {}});
    for (int64_t id = first; id < 10; ++id) {
      rows.ids.push_back(id);
      for (int d = 0; d < 2; ++d) {
        rows.values.push_back(static_cast<float>(id));
        rows.slots[0].values.push_back(0.5f);
      }
    }
    owned.AddTable(std::move(rows));
    return owned;
  }
  std::string Save(const std::string& name, const OwnedSnapshot& owned,
                   int64_t max_file_bytes = 1 << 30) {
    checkpoint::SaveOptions options;
    options.max_file_bytes = max_file_bytes;
    const auto path =
        checkpoint::Save(dir_.Path(name), owned.snapshot, options);
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }

  test::TempDir dir_;
  std::string out_;
  std::string err_;
};

TEST_F(CkptCommandTest, TroubleIsTwo) {
  EXPECT_EQ(Run({"inf"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean info?"));
  EXPECT_EQ(Run({"info"}), 2);
  EXPECT_EQ(Run({"info", dir_.Path("nothing")}), 2);
  EXPECT_THAT(err_, HasSubstr("elasticdl ckpt: "));
  const std::string good = Save("a", Make());
  EXPECT_EQ(Run({"diff", good}), 2);
  EXPECT_EQ(Run({"diff", good, dir_.Path("nothing")}), 2);
  EXPECT_EQ(Run({"diff", dir_.Path("nothing"), good}), 2);
  std::filesystem::resize_file(good + "/variables-0-of-1.ckpt", 100);
  EXPECT_EQ(Run({"info", good}), 2);
  EXPECT_THAT(err_, HasSubstr("variables-0-of-1.ckpt"));
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("info"), HasSubstr("diff")));
  EXPECT_EQ(Run({"diff", "--help"}), 0);
}

TEST_F(CkptCommandTest, ShowsWhatACheckpointHolds) {
  const std::string path = Save("a", Make(), 100);
  // The folder of versions is as good.
  for (const std::string& name : {path, dir_.Path("a")}) {
    ASSERT_EQ(Run({"info", name}), 0) << err_;
    EXPECT_THAT(
        out_,
        AllOf(HasSubstr(path), HasSubstr("step:      5\n"),
              HasSubstr("SGD(lr=0.1,momentum=0.9), applied 6 times"),
              HasSubstr("epoch 1, 320 records committed, 32 outstanding"),
              HasSubstr("variables: 5,"), HasSubstr("fc1/bias float32[7]  28"),
              HasSubstr("slots: 2,"), HasSubstr("fc1/weight/m float32[1000]"),
              HasSubstr("items  10 rows, dim 2, slots m  160 B")));
  }
  ASSERT_EQ(Run({"info", "--json", path}), 0) << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["version"], 5);
  EXPECT_EQ(json["optimizer_step"], 6);
  EXPECT_EQ(json["ledger"]["outstanding_records"], 32);
  EXPECT_EQ(json["variables"][1]["name"], "fc1/bias");
  EXPECT_EQ(json["variables"][1]["dtype"], "float32");
  EXPECT_EQ(json["tables"][0]["rows"], 10);
  EXPECT_EQ(json["tables"][0]["dim"], 2);
  EXPECT_EQ(json["tables"][0]["slots"][0], "m");
  EXPECT_GT(json["tables"][0]["parts"], 1);
}

TEST_F(CkptCommandTest, EqualContentsAreEqualHoweverTheyAreCut) {
  const std::string a = Save("a", Make());
  const std::string b = Save("b", Make(), 30);
  EXPECT_EQ(Run({"diff", a, b}), 0) << out_ << err_;
  EXPECT_EQ(out_, "equal\n");
  EXPECT_EQ(Run({"diff", "--json", a, b}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["equal"], true);
}

TEST_F(CkptCommandTest, NamesWhatDiffers) {
  const std::string a = Save("a", Make());
  OwnedSnapshot other = Make(3);
  other.arrays.back()[1] = 0.75f;
  auto& variables = other.snapshot.variables;
  for (NamedTensor& tensor : variables) {
    if (tensor.name == "fc1/bias") {
      tensor.bytes = other.Keep({1, 1, 3.5f, 1, 1, 1, 1});
    } else if (tensor.name == "fc2/weight") {
      tensor.shape = {30};
    } else if (tensor.name == "scalar") {
      tensor.name = "scale";
    }
  }
  other.snapshot.optimizer_step = 9;
  other.snapshot.ledger->set_committed_records(7);
  OwnedTableRows users;
  users.name = "users";
  users.dim = 1;
  other.AddTable(std::move(users));
  const std::string b = Save("b", other);
  EXPECT_EQ(Run({"diff", a, b}), 1) << err_;
  EXPECT_EQ(out_,
            "optimizer step: 6 | 9\n"
            "ledger: epoch 1, 320 records committed, 32 outstanding | "
            "epoch 1, 7 records committed, 32 outstanding\n"
            "variable fc1/bias: max difference 2.5\n"
            "variable fc2/weight: float32[3,5,2] | float32[30]\n"
            "variable scalar: only in the first\n"
            "variable scale: only in the second\n"
            "table items: 3 rows only in the first, 0 only in the second, max "
            "difference 0.25\n"
            "table users: only in the second\n");
  EXPECT_EQ(Run({"diff", "--json", b, a}), 1);
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["equal"], false);
  ASSERT_EQ(json["differences"].size(), 8u);
  EXPECT_EQ(json["differences"][6]["rows_only_in_second"], 3);
  EXPECT_EQ(json["differences"][7]["only_in"], "first");
}

TEST(CompareTest, KnowsAllTypes) {
  const auto distance = [](v1::DataType dtype, std::vector<uint8_t> a,
                           std::vector<uint8_t> b) {
    NamedTensor x;
    x.dtype = dtype;
    NamedTensor y = x;
    x.bytes =
        absl::MakeConstSpan(reinterpret_cast<const char*>(a.data()), a.size());
    y.bytes =
        absl::MakeConstSpan(reinterpret_cast<const char*>(b.data()), b.size());
    return MaxDifference(x, y);
  };
  EXPECT_EQ(distance(v1::DT_INT8, {5, 255}, {5, 1}), 2);
  EXPECT_EQ(distance(v1::DT_UINT8, {255}, {1}), 254);
  EXPECT_EQ(distance(v1::DT_BOOL, {0}, {1}), 1);
  EXPECT_EQ(distance(v1::DT_INT16, {0, 1}, {0, 0}), 256);
  EXPECT_EQ(distance(v1::DT_INT32, {0, 0, 1, 0}, {0, 0, 0, 0}), 65536);
  // 2^60 and its neighbour are one double.
  EXPECT_EQ(distance(v1::DT_INT64, {0, 0, 0, 0, 0, 0, 0, 16},
                     {1, 0, 0, 0, 0, 0, 0, 16}),
            1);
  // 1 and 1.5, -2 and 0.
  EXPECT_EQ(distance(v1::DT_HALF, {0, 0x3c}, {0, 0x3e}), 0.5);
  EXPECT_EQ(distance(v1::DT_HALF, {0, 0xc0}, {0, 0}), 2);
  EXPECT_EQ(distance(v1::DT_BFLOAT16, {0x80, 0x3f}, {0, 0}), 1);
  // 0 and -0; one that is no number.
  EXPECT_EQ(distance(v1::DT_FLOAT, {0, 0, 0, 0}, {0, 0, 0, 0x80}), 0);
  EXPECT_EQ(distance(v1::DT_FLOAT, {0, 0, 0xc0, 0x7f}, {0, 0, 0, 0}), HUGE_VAL);
  EXPECT_EQ(distance(v1::DT_FLOAT, {0, 0, 0xc0, 0x7f}, {1, 0, 0xc0, 0x7f}), 0);
}

}  // namespace
}  // namespace elasticdl::cli
