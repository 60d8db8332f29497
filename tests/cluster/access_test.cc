// Rights: the role of a job, and what a refusal says.
#include "elasticdl/cluster/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::cluster {
namespace {

using ::testing::HasSubstr;

constexpr char kAccount[] =
    R"(pods is forbidden: User "system:serviceaccount:team:default" cannot )"
    R"(create resource "pods" in API group "" in the namespace "team")";

TEST(AccessTest, RoleHasWhatTheMasterDoes) {
  const Json role = MakeRole("team");
  EXPECT_EQ(role["metadata"]["namespace"], "team");
  EXPECT_EQ(role["rules"][0]["resources"], Json::array({"pods"}));
  EXPECT_EQ(role["rules"][0]["apiGroups"], Json::array({""}));
  EXPECT_THAT(role["rules"][0]["verbs"].dump(), HasSubstr("\"watch\""));
  const Json binding = MakeRoleBinding("team", "trainer");
  EXPECT_EQ(binding["roleRef"]["name"], role["metadata"]["name"]);
  EXPECT_EQ(binding["subjects"], Json::array({{{"kind", "ServiceAccount"},
                                               {"name", "trainer"},
                                               {"namespace", "team"}}}));
}

TEST(AccessTest, RefusalOfAServiceAccount) {
  const auto forbidden = ParseForbidden(kAccount);
  ASSERT_TRUE(forbidden.has_value());
  EXPECT_EQ(forbidden->account_namespace, "team");
  EXPECT_EQ(forbidden->account, "default");
  EXPECT_EQ(forbidden->verb, "create");
  EXPECT_EQ(forbidden->resource, "pods");
  EXPECT_EQ(ExplainForbidden(kAccount),
            "service account default may not create pods in namespace team; "
            "somebody who may can grant it: elasticdl rbac --namespace=team "
            "--service_account=default --apply");
}

TEST(AccessTest, RefusalOfAPerson) {
  EXPECT_EQ(
      ExplainForbidden(R"(pods "x" is forbidden: User "ann" cannot get )"
                       R"(resource "pods/log" in API group "" in the )"
                       R"(namespace "team")"),
      "user ann may not get pods/log in namespace team; somebody who may can "
      "grant it: kubectl create rolebinding elasticdl-user --clusterrole=edit "
      "--user=ann --namespace=team");
  EXPECT_THAT(ExplainForbidden(
                  R"(roles.rbac.authorization.k8s.io is forbidden: User "ann" )"
                  R"(cannot create resource "roles" in API group "rbac.)"
                  R"(authorization.k8s.io" in the namespace "team")"),
              HasSubstr("--clusterrole=admin"));
}

TEST(AccessTest, OtherWordsStayAsTheyAre) {
  for (const char* text :
       {"", "exceeded quota", "User \"x\" cannot", "\" cannot get resource \"",
        "resource \"x\" \" cannot "}) {
    EXPECT_FALSE(ParseForbidden(text).has_value()) << text;
    EXPECT_EQ(ExplainForbidden(text), text);
  }
}

}  // namespace
}  // namespace elasticdl::cluster
