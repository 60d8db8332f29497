// Which secrets are equal.
#include "elasticdl/common/secret.h"

#include <gtest/gtest.h>

namespace elasticdl {
namespace {

TEST(SecretTest, EqualOnlyWhenAllBytesAreAndThereAreSome) {
  EXPECT_TRUE(SecretsEqual("0123", "0123"));
  EXPECT_FALSE(SecretsEqual("0123", "0124"));
  EXPECT_FALSE(SecretsEqual("0123", "1123"));
  EXPECT_FALSE(SecretsEqual("0123", "012"));
  EXPECT_FALSE(SecretsEqual("012", "0123"));
  EXPECT_FALSE(SecretsEqual("", "0"));
  EXPECT_FALSE(SecretsEqual("", ""));
}

}  // namespace
}  // namespace elasticdl
