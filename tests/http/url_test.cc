#include "elasticdl/http/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::http {
namespace {

using ::testing::HasSubstr;

TEST(UrlTest, OnlyUnreservedCharactersStay) {
  EXPECT_EQ(PercentEncode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(PercentEncode("a b/c?d=e&f+g%h:"),
            "a%20b%2Fc%3Fd%3De%26f%2Bg%25h%3A");
  EXPECT_EQ(PercentEncode("é\n"), "%C3%A9%0A");
  EXPECT_EQ(PercentEncode(absl::string_view("\0\xff", 2)), "%00%FF");
}

TEST(UrlTest, Parts) {
  const absl::StatusOr<Url> full = ParseUrl("https://[::1]:6443/a/b//");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->scheme, "https");
  EXPECT_EQ(full->host, "[::1]");
  EXPECT_EQ(full->port, "6443");
  EXPECT_EQ(full->path, "/a/b");
  const absl::StatusOr<Url> bare = ParseUrl("http://host");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_EQ(bare->port, "80");
  EXPECT_EQ(bare->path, "");
}

TEST(UrlTest, OtherTextIsRefused) {
  for (const char* bad : {"", "host", "ftp://host", "https://"}) {
    const absl::Status status = ParseUrl(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad));
  }
}

}  // namespace
}  // namespace elasticdl::http
