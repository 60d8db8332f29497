// Objects out of a stream that is cut anywhere.
#include "json_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace elasticdl::docker {
namespace {

using ::testing::ElementsAre;

TEST(JsonStreamTest, CutAnywhere) {
  const std::string a = "{\"a\":\"}\\\"{\",\"b\":[{},{}]}";
  const std::string b = "{}";
  const std::string text = a + "\r\n" + b + b + "\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    std::vector<std::string> objects;
    JsonStream stream([&](const std::string& one) { objects.push_back(one); });
    for (size_t at = 0; at < text.size(); at += piece) {
      ASSERT_TRUE(stream.Feed(text.substr(at, piece)).ok());
    }
    EXPECT_THAT(objects, ElementsAre(a, b, b)) << piece;
    EXPECT_FALSE(stream.inside());
  }
}

TEST(JsonStreamTest, EndInTheMiddle) {
  JsonStream stream([](const std::string&) { FAIL(); });
  EXPECT_TRUE(stream.Feed("{\"a\":\"b").ok());
  EXPECT_TRUE(stream.inside());
}

TEST(JsonStreamTest, NoObjects) {
  for (const char* bad : {"x", "[1]", "}", "\"a\""}) {
    JsonStream stream([](const std::string&) { FAIL(); });
    EXPECT_EQ(stream.Feed(bad).code(), absl::StatusCode::kDataLoss) << bad;
  }
}

TEST(JsonStreamTest, EndlessObject) {
  JsonStream stream([](const std::string&) { FAIL(); });
  const std::string part(1 << 20, 'x');
  ASSERT_TRUE(stream.Feed("{\"a\":\"").ok());
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = stream.Feed(part);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace elasticdl::docker
