#include "url.h"

#include <gtest/gtest.h>

namespace elasticdl::kube {
namespace {

TEST(UrlTest, SegmentsCannotLeaveTheirPlace) {
  Request request;
  request.path = {"api", "v1", "namespaces", "../../secrets", "pods", "a?b#c"};
  EXPECT_EQ(TargetOf(request),
            "/api/v1/namespaces/..%2F..%2Fsecrets/pods/a%3Fb%23c");
  request.path = {"proxy", ""};
  EXPECT_EQ(TargetOf(request), "/proxy/");
  request.path = {};
  EXPECT_EQ(TargetOf(request), "/");
}

TEST(UrlTest, QueryIsEncoded) {
  Request request;
  request.path = {"pods"};
  request.query = {{"labelSelector", "a=b,c in (x,y)"}, {"watch", "true"}};
  EXPECT_EQ(TargetOf(request),
            "/pods?labelSelector=a%3Db%2Cc%20in%20%28x%2Cy%29&watch=true");
}

}  // namespace
}  // namespace elasticdl::kube
