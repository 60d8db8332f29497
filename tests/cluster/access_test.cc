// Rights: the role of a job, and what a refusal says.
#include "elasticdl/cluster/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace elasticdl::cluster {
namespace {

using ::testing::HasSubstr;

constexpr char kAccount[] =
    R"(pods is forbidden: User "system:serviceaccount:team:default" cannot )"
    R"(create resource "pods" in API group "" in the namespace "team")";

TEST(AccessTest, RoleHasWhatTheMasterDoes) {
  const Json role = MakeRole(Party::kMaster, "team");
  EXPECT_EQ(role["metadata"]["namespace"], "team");
  EXPECT_EQ(role["rules"][0]["resources"], Json::array({"pods"}));
  EXPECT_EQ(role["rules"][0]["apiGroups"], Json::array({""}));
  EXPECT_THAT(role["rules"][0]["verbs"].dump(), HasSubstr("\"watch\""));
  const Json binding =
      MakeRoleBinding(Party::kMaster, "team", {"", "trainer", "team"});
  EXPECT_EQ(binding["roleRef"]["name"], role["metadata"]["name"]);
  EXPECT_EQ(binding["subjects"], Json::array({{{"kind", "ServiceAccount"},
                                               {"name", "trainer"},
                                               {"namespace", "team"}}}));
}

TEST(AccessTest, EachSubjectHasABindingOfItsOwn) {
  std::set<std::string> names;
  const Subject subjects[] = {{"", "default", "team"}, {"", "trainer", "team"},
                              {"", "trainer", "ci"},   {"ann", "", ""},
                              {"a/b", "", ""},         {"a_2Fb", "", ""},
                              {"trainer_", "", ""}};
  for (const Subject& subject : subjects) {
    for (const Party party : {Party::kMaster, Party::kClient}) {
      const Json binding = MakeRoleBinding(party, "team", subject);
      const std::string name = binding["metadata"]["name"];
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(name.find('/'), std::string::npos);
    }
  }
}

TEST(AccessTest, ClientsHaveTheirOwnRole) {
  const Json role = MakeRole(Party::kClient, "team");
  EXPECT_NE(role["metadata"]["name"],
            MakeRole(Party::kMaster, "team")["metadata"]["name"]);
  const std::string rules = role["rules"].dump();
  for (const char* resource : {"secrets", "services", "pods/proxy"}) {
    EXPECT_THAT(rules, HasSubstr(resource));
  }
  EXPECT_EQ(
      MakeRoleBinding(Party::kClient, "team", {"ann", "", ""})["subjects"],
      Json::array({{{"kind", "User"},
                    {"apiGroup", "rbac.authorization.k8s.io"},
                    {"name", "ann"}}}));
}

TEST(AccessTest, ReviewsAskForOneRight) {
  const Right right = {"get", "pods/log", ""};
  const Json self = MakeSelfReview(right, "team");
  EXPECT_EQ(self["kind"], "SelfSubjectAccessReview");
  EXPECT_EQ(self["spec"]["resourceAttributes"]["resource"], "pods");
  EXPECT_EQ(self["spec"]["resourceAttributes"]["subresource"], "log");
  const Json account = MakeAccountReview(right, "team", "trainer");
  EXPECT_EQ(account["metadata"]["namespace"], "team");
  EXPECT_EQ(account["spec"]["user"], "system:serviceaccount:team:trainer");
}

TEST(AccessTest, RefusalOfAServiceAccount) {
  const auto forbidden = ParseForbidden(kAccount);
  ASSERT_TRUE(forbidden.has_value());
  EXPECT_EQ(forbidden->account_namespace, "team");
  EXPECT_EQ(forbidden->account, "default");
  EXPECT_EQ(forbidden->verb, "create");
  EXPECT_EQ(forbidden->resource, "pods");
  EXPECT_EQ(ExplainForbidden(kAccount, Party::kMaster),
            "service account default may not create pods in namespace team; "
            "an administrator can grant it: elasticdl rbac --namespace=team "
            "--apply");
  // The same refusal, but it was the client that asked: another role.
  EXPECT_EQ(ExplainForbidden(kAccount, Party::kClient),
            "service account default may not create pods in namespace team; "
            "an administrator can grant it: elasticdl rbac --client "
            "--namespace=team --service_account=default --apply");
}

TEST(AccessTest, MissingPriorityClassIsNoMatterOfRights) {
  const std::string text = ExplainForbidden(
      R"(pods "elasticdl-worker-j-0" is forbidden: no PriorityClass with name )"
      "high was found",
      Party::kClient);
  EXPECT_THAT(text,
              HasSubstr("there is no priority class high on the cluster"));
  EXPECT_THAT(text, HasSubstr("kubectl create priorityclass high --value="));
}

TEST(AccessTest, RefusalOfAPerson) {
  const auto explain = [](const std::string& message) {
    return ExplainForbidden(message, Party::kClient);
  };
  EXPECT_EQ(explain(R"(pods "x" is forbidden: User "ann" cannot get )"
                    R"(resource "pods/log" in API group "" in the )"
                    R"(namespace "team")"),
            "user ann may not get pods/log in namespace team; an administrator "
            "can grant it: elasticdl rbac --client --namespace=team --user=ann "
            "--apply");
  EXPECT_THAT(explain(R"(pods "x" is forbidden: User "Ann O'Hara" cannot get )"
                      R"(resource "pods" in API group "" in the )"
                      R"(namespace "team")"),
              HasSubstr(R"(--user='Ann O'\''Hara')"));
  EXPECT_THAT(explain(R"(pods "x" is forbidden: User )"
                      R"("system:serviceaccount:ci:bot" cannot get resource )"
                      R"("pods" in API group "" in the namespace "team")"),
              HasSubstr("--namespace=team --service_account=ci:bot --apply"));
  EXPECT_THAT(
      explain(R"(roles.rbac.authorization.k8s.io is forbidden: User "ann" )"
              R"(cannot create resource "roles" in API group "rbac.)"
              R"(authorization.k8s.io" in the namespace "team")"),
      HasSubstr("--clusterrole=admin --user=ann --namespace=team"));
}

TEST(AccessTest, OtherWordsStayAsTheyAre) {
  for (const char* text :
       {"", "exceeded quota", "User \"x\" cannot", "\" cannot get resource \"",
        "resource \"x\" \" cannot "}) {
    EXPECT_FALSE(ParseForbidden(text).has_value()) << text;
    EXPECT_EQ(ExplainForbidden(text, Party::kClient), text);
  }
}

}  // namespace
}  // namespace elasticdl::cluster
