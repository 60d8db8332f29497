// Requests to a fork server as bytes.
#include "fork_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::process {
namespace {

using ::testing::ElementsAre;

TEST(ForkWireTest, CarriesAllStrings) {
  ForkRequest request;
  request.request = 7;
  request.argv = {"a", "", "b c"};
  request.environment = {"X=1", "Y="};
  ForkRequest read;
  ASSERT_TRUE(DecodeForkRequest(EncodeForkRequest(request), &read));
  EXPECT_EQ(read.request, 7u);
  EXPECT_THAT(read.argv, ElementsAre("a", "", "b c"));
  EXPECT_THAT(read.environment, ElementsAre("X=1", "Y="));
}

TEST(ForkWireTest, RefusesWhatIsCutOffOrTooLong) {
  ForkRequest request;
  request.argv = {"program", "argument"};
  request.environment = {"X=1"};
  const std::string bytes = EncodeForkRequest(request);
  for (size_t length = 0; length < bytes.size(); ++length) {
    ForkRequest read;
    EXPECT_FALSE(DecodeForkRequest(bytes.substr(0, length), &read)) << length;
  }
  ForkRequest read;
  EXPECT_FALSE(DecodeForkRequest(bytes + "x", &read));
}

}  // namespace
}  // namespace elasticdl::process
