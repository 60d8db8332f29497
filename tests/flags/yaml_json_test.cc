// YAML to JSON and back, as Kubernetes' tools read it.
#include "elasticdl/flags/yaml_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::flags {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

TEST(YamlJsonTest, ScalarsByTheirLooks) {
  const auto json = JsonFromYaml(
      "a: 1\nb: -2.5\nc: true\nd: yes\ne: '1'\nf: \"true\"\ng: ~\nh:\n"
      "i: None\nj: 100m\nk: 2020-01-01\nl: [x, {m: 1e3}]\n");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, Json::parse(R"({"a": 1, "b": -2.5, "c": true, "d": "yes",
    "e": "1", "f": "true", "g": null, "h": null, "i": "None", "j": "100m",
    "k": "2020-01-01", "l": ["x", {"m": 1000.0}]})"));
  EXPECT_EQ(*JsonFromYaml(R"({"json": ["is", "yaml"]})"),
            Json({{"json", {"is", "yaml"}}}));
}

TEST(YamlJsonTest, ErrorsTellTheLine) {
  const auto json = JsonFromYaml("a: 1\nb: [1, 2\nc: 3\n");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(json.status().message()), HasSubstr("line 3"));
}

TEST(YamlJsonTest, WritesWhatKubectlWrites) {
  EXPECT_EQ(YamlFromJson(Json::parse(R"({
    "apiVersion": "v1", "num": 1, "n": 2, "none": {}, "empty": [],
    "list": [{"a": 1, "b": ["x"]}, "y"], "map": {"k/v": "z"}})")),
            "apiVersion: v1\n"
            "empty: []\n"
            "list:\n"
            "- a: 1\n"
            "  b:\n"
            "  - x\n"
            "- \"y\"\n"
            "map:\n"
            "  k/v: z\n"
            "\"n\": 2\n"
            "none: {}\n"
            "num: 1\n");
}

TEST(YamlJsonTest, QuotesWhatCouldBeSomethingElse) {
  for (const char* text :
       {"",     "yes", "No",   "on",  "null", "~",        "1",  "1e3",
        "0x10", "012", "1:30", "- a", "a: b", "a #b",     "*x", "&x",
        "!x",   "%x",  "@x",   "`x",  "'x'",  "a\tb",     " a", "a ",
        "=",    "[x",  "{x",   "\"",  "\\",   "\xc3\xa9", "a\n"}) {
    const Json value = {{"k", text}};
    const std::string yaml = YamlFromJson(value);
    EXPECT_THAT(yaml, HasSubstr("k: \"")) << yaml;
    EXPECT_EQ(*JsonFromYaml(yaml), value) << yaml;
  }
}

TEST(YamlJsonTest, LinesStandAsABlock) {
  const Json value = {{"a", {{"text", "{\n  \"x\": 1\n\n}"}}}};
  EXPECT_EQ(YamlFromJson(value),
            "a:\n  text: |-\n    {\n      \"x\": 1\n\n    }\n");
  EXPECT_EQ(*JsonFromYaml(YamlFromJson(value)), value);
  const Json in_list = {"a\nb", {{"k", "c\nd"}}};
  EXPECT_EQ(*JsonFromYaml(YamlFromJson(in_list)), in_list);
}

TEST(YamlJsonTest, DocumentsAreSeparated) {
  EXPECT_EQ(YamlDocuments({{{"a", 1}}, {{"b", 2}}}), "---\na: 1\n---\nb: 2\n");
}

TEST(YamlJsonTest, NestedValuesComeBack) {
  const Json value = Json::parse(R"([[1, [2, []]], {"a": {"b": [{"c": {}}]}},
    null, true, 1.5, "x: y", [["deep"]]])");
  EXPECT_EQ(*JsonFromYaml(YamlFromJson(value)), value) << YamlFromJson(value);
}

}  // namespace
}  // namespace elasticdl::flags
