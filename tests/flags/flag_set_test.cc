// FlagSet: parsing, hints, suggestions, config file, help.
#include "elasticdl/flags/flag_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sample {
  FlagSet set{"elasticdl sample", "Shows what flags can do."};
  std::string data;
  std::string level = "INFO";
  int64_t count = 2;
  double rate = 0.1;
  bool async = false;
  bool shuffle = true;
  std::vector<std::string> files;

  Sample() {
    FlagInfo info;
    info.help = "Where the data is.";
    info.old_names = {"train_data_dir", "training_data_dir"};
    info.aliases = {"input"};
    set.Add("training_data", &data, info);
    info = {};
    info.choices = {"DEBUG", "INFO"};
    set.Add("log_level", &level, info);
    info = {};
    info.min = 0;
    info.max = 100;
    set.Add("num_workers", &count, info);
    set.Add("rate", &rate, {});
    set.Add("use_async", &async, {});
    set.Add("shuffle", &shuffle, {});
  }
};

std::string Error(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(FlagSetTest, TakesValuesInBothForms) {
  Sample s;
  ASSERT_TRUE(s.set
                  .Parse({"--training_data", "a=b", "--num_workers=7", "--rate",
                          "-2.5", "--log_level=debug"})
                  .ok());
  EXPECT_EQ(s.data, "a=b");
  EXPECT_EQ(s.count, 7);
  EXPECT_EQ(s.rate, -2.5);
  EXPECT_EQ(s.level, "DEBUG");
  EXPECT_TRUE(s.set.IsSet("num_workers"));
  EXPECT_FALSE(s.set.IsSet("shuffle"));
  EXPECT_THAT(s.set.ToArgs(),
              ElementsAre("--training_data=a=b", "--log_level=DEBUG",
                          "--num_workers=7", "--rate=-2.5"));
}

TEST(FlagSetTest, LastOneWinsAndEmptyValuesAreValues) {
  Sample s;
  ASSERT_TRUE(s.set.Parse({"--training_data=x", "--training_data="}).ok());
  EXPECT_EQ(s.data, "");
  EXPECT_THAT(s.set.ToArgs(), ElementsAre("--training_data="));
}

TEST(FlagSetTest, OneDashIsEnough) {
  Sample s;
  ASSERT_TRUE(s.set.Parse({"-num_workers=3", "-use_async"}).ok());
  EXPECT_EQ(s.count, 3);
  EXPECT_TRUE(s.async);
}

TEST(FlagSetTest, BareBooleanTurnsItsDefaultAround) {
  Sample s;
  ASSERT_TRUE(s.set.Parse({"--use_async", "--shuffle"}).ok());
  EXPECT_TRUE(s.async);
  EXPECT_FALSE(s.shuffle);
}

TEST(FlagSetTest, BareBooleanTwiceIsStillNotTheDefault) {
  Sample s;
  ASSERT_TRUE(s.set.Parse({"--use_async", "--use_async"}).ok());
  EXPECT_TRUE(s.async);
}

TEST(FlagSetTest, BooleanWordsInAnyCase) {
  for (const char* word : {"true", "Yes", "T", "y", "1"}) {
    Sample s;
    ASSERT_TRUE(s.set.Parse({std::string("--use_async=") + word}).ok());
    EXPECT_TRUE(s.async) << word;
  }
  for (const char* word : {"FALSE", "no", "f", "N", "0"}) {
    Sample s;
    ASSERT_TRUE(s.set.Parse({"--shuffle", word}).ok());
    EXPECT_FALSE(s.shuffle) << word;
  }
  Sample s;
  EXPECT_THAT(Error(s.set.Parse({"--use_async=maybe"})),
              HasSubstr("--use_async: 'maybe' is neither true"));
  Sample t;
  EXPECT_THAT(Error(t.set.Parse({"--use_async", "maybe"})),
              HasSubstr("'maybe'"));
}

TEST(FlagSetTest, BooleanLeavesPositionalsAlone) {
  Sample s;
  s.set.AddPositional("FILE", &s.files, 1, "the files");
  ASSERT_TRUE(s.set.Parse({"--use_async", "a", "--", "--b"}).ok());
  EXPECT_TRUE(s.async);
  EXPECT_THAT(s.files, ElementsAre("a", "--b"));
}

TEST(FlagSetTest, BooleanTakesNoPositionalThatLooksLikeABoolean) {
  for (const char* word : {"0", "1", "no", "true"}) {
    Sample s;
    s.set.AddPositional("POD", &s.files, 0, "the pod", 1);
    ASSERT_TRUE(s.set.Parse({"--use_async", word}).ok()) << word;
    EXPECT_TRUE(s.async) << word;
    EXPECT_THAT(s.files, ElementsAre(word));
  }
  Sample said;
  said.set.AddPositional("POD", &said.files, 0, "the pod", 1);
  ASSERT_TRUE(said.set.Parse({"--use_async=false", "0"}).ok());
  EXPECT_FALSE(said.async);
  EXPECT_THAT(said.files, ElementsAre("0"));
}

TEST(FlagSetTest, PositionalsAreCounted) {
  Sample none;
  EXPECT_THAT(Error(none.set.Parse({"a"})),
              HasSubstr("unexpected argument 'a'"));
  Sample one;
  one.set.AddPositional("PATH", &one.files, 1, "the folder", 1);
  EXPECT_THAT(Error(one.set.Parse({})), HasSubstr("missing argument PATH"));
  Sample two;
  two.set.AddPositional("PATH", &two.files, 1, "the folder", 1);
  EXPECT_THAT(Error(two.set.Parse({"a", "b"})),
              HasSubstr("unexpected argument 'b'"));
}

TEST(FlagSetTest, NamesTheFlagAndTheValueInErrors) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"--num_workers=two"}, "--num_workers: 'two' is not an integer"},
      {{"--num_workers=1.5"}, "--num_workers: '1.5' is not an integer"},
      {{"--num_workers=-1"}, "--num_workers: '-1' is too small"},
      {{"--num_workers=101"}, "--num_workers: '101' is too large"},
      {{"--num_workers"}, "--num_workers needs a value"},
      {{"--num_workers", "--shuffle"}, "--num_workers needs a value"},
      {{"--rate=fast"}, "--rate: 'fast' is not a number"},
      {{"--rate=nan"}, "--rate: 'nan' is not a number"},
      {{"--log_level=DEBG"}, "did you mean DEBUG?"},
      {{"--config=/no/such.yaml"}, "/no/such.yaml"},
  };
  for (const auto& [args, text] : kCases) {
    Sample s;
    const std::string message = Error(s.set.Parse(args));
    EXPECT_THAT(message, HasSubstr(text));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(FlagSetTest, SuggestsTheNearestName) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--num_worker=1",
       "unknown flag --num_worker, did you mean "
       "--num_workers?"},
      {"--num-workers=1", "did you mean --num_workers?"},
      {"--nmu_workers=1", "did you mean --num_workers?"},
      {"--training_dat_dir=x",
       "did you mean --training_data (the old --training_data_dir)?"},
      {"--shufle", "did you mean --shuffle?"},
      {"--hlep", "did you mean --help?"},
      {"--log=DEBUG", "unknown flag --log"},
  };
  for (const auto& [arg, text] : kCases) {
    Sample s;
    EXPECT_THAT(Error(s.set.Parse({arg})), HasSubstr(text));
  }
  Sample s;
  EXPECT_EQ(Error(s.set.Parse({"--zzzzzzzz=1"})), "unknown flag --zzzzzzzz");
}

TEST(FlagSetTest, OldNamesWorkWithOneHint) {
  Sample s;
  ASSERT_TRUE(s.set
                  .Parse({"--training_data_dir=a", "--training_data_dir=b",
                          "--input=c"})
                  .ok());
  EXPECT_EQ(s.data, "c");
  EXPECT_THAT(s.set.hints(),
              ElementsAre("--training_data_dir is now --training_data"));
  EXPECT_THAT(s.set.ToArgs(), ElementsAre("--training_data=c"));
}

TEST(FlagSetTest, RequiredFlagsAreNamed) {
  FlagSet set("x", "y");
  std::string a, b;
  FlagInfo info;
  info.required = true;
  set.Add("alpha", &a, info);
  set.Add("beta", &b, info);
  EXPECT_EQ(Error(set.Parse({})), "missing required flags --alpha, --beta");
}

TEST(FlagSetTest, CheckSeesTheValue) {
  FlagSet set("x", "y");
  std::string text = "keep";
  FlagInfo info;
  info.check = [](const std::string& value) {
    return value == "good" ? absl::OkStatus()
                           : absl::InvalidArgumentError("not good");
  };
  set.Add("text", &text, info);
  EXPECT_EQ(Error(set.Parse({"--text=bad"})), "--text: not good");
  EXPECT_EQ(text, "keep");
}

TEST(FlagSetTest, SetAndUnsetChangeWhatIsPassedOn) {
  Sample s;
  ASSERT_TRUE(s.set.Parse({"--num_workers=3"}).ok());
  ASSERT_TRUE(s.set.Set("training_data", "x").ok());
  s.set.Unset("num_workers");
  EXPECT_THAT(s.set.ToArgs(), ElementsAre("--training_data=x"));
  EXPECT_FALSE(s.set.Set("num_wokers", "1").ok());
  EXPECT_FALSE(s.set.Set("num_workers", "x").ok());
}

TEST(FlagSetTest, ConfigFileHoldsTheSameNames) {
  test::TempDir dir;
  const std::string path = dir.Path("job.yaml");
  ASSERT_TRUE(WriteFileAtomic(path,
                              "# a job\n"
                              "training_data_dir: /data\n"
                              "num_workers: 5\n"
                              "use_async: yes\n"
                              "rate: '0.25'\n")
                  .ok());
  Sample s;
  const absl::Status status =
      s.set.Parse({"--num_workers=6", "--config", path});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(s.data, "/data");
  EXPECT_EQ(s.count, 6);
  EXPECT_TRUE(s.async);
  EXPECT_EQ(s.rate, 0.25);
  EXPECT_TRUE(s.set.IsSet("rate"));
  EXPECT_THAT(s.set.ToArgs(),
              ElementsAre("--training_data=/data", "--num_workers=6",
                          "--rate=0.25", "--use_async=true"));
}

TEST(FlagSetTest, ConfigErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"rate: 1\nnum_wokers: 3\n",
       "job.yaml:2: unknown flag num_wokers, did you mean --num_workers?"},
      {"rate: 1\n\nnum_workers: x\n", "job.yaml:3: --num_workers: 'x' is not"},
      {"num_workers: [1, 2]\n", "job.yaml:1: the value of num_workers"},
      {"- a\n- b\n", "job.yaml:1: expected lines"},
      {"rate: 1\nrate: 2\n", "job.yaml:2: rate is given twice"},
      {"rate: 'x\n", "job.yaml:"},
  };
  test::TempDir dir;
  const std::string path = dir.Path("job.yaml");
  for (const auto& [text, message] : kCases) {
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
    Sample s;
    EXPECT_THAT(Error(s.set.Parse({"--config=" + path})), HasSubstr(message));
  }
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  Sample s;
  EXPECT_TRUE(s.set.Parse({"--config=" + path}).ok());
}

TEST(FlagSetTest, HelpIsGroupedAndNarrow) {
  Sample s;
  FlagInfo info;
  info.group = "Cluster";
  info.help = std::string(40, 'w') + " " + std::string(40, 'v');
  std::string target = "x";
  s.set.Add("a_flag_with_a_long_name_indeed", &target, info);
  info.hidden = true;
  std::string secret;
  s.set.Add("very_old", &secret, info);
  EXPECT_TRUE(absl::IsCancelled(s.set.Parse({"--help"})));
  const std::string help = s.set.Help();
  EXPECT_THAT(help, HasSubstr("Usage: elasticdl sample [flags]\n"));
  EXPECT_THAT(help, HasSubstr("\nOptions:\n"));
  EXPECT_THAT(help, HasSubstr("\nCluster:\n"));
  EXPECT_THAT(help, HasSubstr("(default: x)"));
  EXPECT_THAT(help, HasSubstr("One of DEBUG, INFO."));
  EXPECT_EQ(help.find("very_old"), std::string::npos);
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 90u) << line;
  }
}

TEST(FlagSetTest, ExitCodes) {
  Sample good, bad, help;
  EXPECT_EQ(good.set.ParseOrExitCode({"--rate=1"}), -1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(bad.set.ParseOrExitCode({"--rat=1"}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "elasticdl sample: unknown flag --rat, did you mean --rate?\n");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(help.set.ParseOrExitCode({"--rate=1", "-h"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("Usage:"));
}

}  // namespace
}  // namespace elasticdl::flags
