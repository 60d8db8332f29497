// What the master adds to its workers' pods.
#include "master_pod.h"

#include <gtest/gtest.h>

namespace elasticdl::master {
namespace {

using kube::Json;

Json Pod() {
  return {{"spec",
           {{"containers",
             {{{"name", "worker"},
               {"env", {{{"name", "HAS"}, {"value", "its own"}}}}}}}}}};
}

TEST(AddEnvironmentTest, WholeNamesThatMatchAreAdded) {
  Json pod = Pod();
  ASSERT_TRUE(AddEnvironment({"MY_A=1", "MY_B=x=y", "OTHER_MY_A=2", "HAS=no"},
                             "MY_.*|HAS", pod)
                  .ok());
  EXPECT_EQ(pod["spec"]["containers"][0]["env"],
            Json::parse(R"([{"name":"HAS","value":"its own"},
                            {"name":"MY_A","value":"1"},
                            {"name":"MY_B","value":"x=y"}])"));
}

TEST(AddEnvironmentTest, NothingIsAddedUnlessAskedFor) {
  Json pod = Pod();
  ASSERT_TRUE(AddEnvironment({"A=1"}, "", pod).ok());
  EXPECT_EQ(pod, Pod());
}

TEST(AddEnvironmentTest, BadPatternIsTold) {
  Json pod = Pod();
  const absl::Status status = AddEnvironment({"A=1"}, "(", pod);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--populate_env_names"), std::string::npos);
}

}  // namespace
}  // namespace elasticdl::master
