#include "elasticdl/common/json_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace elasticdl {
namespace {

TEST(JsonTextTest, IsOneLineOrIndented) {
  const nlohmann::json json = {{"b", 1}, {"a", {1, 2}}};
  EXPECT_EQ(JsonText(json), R"({"a":[1,2],"b":1})");
  EXPECT_EQ(JsonText(nlohmann::ordered_json{{"b", 1}, {"a", 2}}),
            R"({"b":1,"a":2})");
  EXPECT_EQ(JsonText(nlohmann::json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

TEST(JsonTextTest, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonText(nlohmann::json("a\xff"
                                    "b")),
            "\"a\xef\xbf\xbd"
            "b\"");
}

TEST(JsonTextTest, TextThatIsNotJsonIsDiscarded) {
  EXPECT_TRUE(ParseJson("{\"a\":").is_discarded());
  EXPECT_TRUE(ParseOrderedJson("").is_discarded());
  EXPECT_EQ(ParseJson("{\"a\":1}").at("a"), 1);
  EXPECT_EQ(JsonText(ParseOrderedJson(R"({"b":1,"a":2})")), R"({"b":1,"a":2})");
}

TEST(JsonTextTest, NumbersThatJsonHasNotAreNull) {
  EXPECT_EQ(JsonText(JsonNumber(1.5)), "1.5");
  EXPECT_TRUE(JsonNumber(std::numeric_limits<double>::infinity()).is_null());
  EXPECT_TRUE(JsonNumber(std::numeric_limits<double>::quiet_NaN()).is_null());
  EXPECT_TRUE(JsonNumber(std::nullopt).is_null());
}

}  // namespace
}  // namespace elasticdl
