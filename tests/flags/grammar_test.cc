// Grammars of flag values: what they accept, refuse and say.
#include "elasticdl/flags/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

struct BadCase {
  const char* text;
  // What the message must say.
  const char* says;
};

template <typename Parse>
void ExpectBad(Parse parse, const std::vector<BadCase>& cases) {
  for (const BadCase& one : cases) {
    const absl::Status status = parse(one.text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(ResourcesTest, AcceptsWhatTheOriginalAccepted) {
  for (const char* text :
       {"", " ", "cpu=1", "cpu=0.1,memory=1024Mi", "cpu=250m",
        "cpu=1.5,memory=4G,disk=1Ti,gpu=2", "cpu = 1 , memory = 32Mi",
        "amd.com/gpu=1", "gpu.example-vendor.com/gpu=4", "memory=5E",
        "nvidia.com/mig-1g.5gb=1", "ephemeral-storage=5000Mi", "gpu=0",
        "cpu=1,memory=2048Mi,ephemeral-storage=5000Mi"}) {
    EXPECT_TRUE(ParseResources(text).ok())
        << text << ": " << ParseResources(text).status();
  }
}

TEST(ResourcesTest, NamesThePartsAsKubernetesDoes) {
  EXPECT_THAT(
      ParseResources("cpu=0.5, gpu=2,disk=1Gi").value(),
      UnorderedElementsAre(Pair("cpu", "0.5"), Pair("nvidia.com/gpu", "2"),
                           Pair("ephemeral-storage", "1Gi")));
  EXPECT_EQ(FormatResources(ParseResources("memory=1Gi,cpu=2").value()),
            "cpu=2,memory=1Gi");
}

TEST(MemorySizeTest, IsLikeAResource) {
  EXPECT_EQ(ParseMemorySize("").value(), 0);
  EXPECT_EQ(ParseMemorySize("0").value(), 0);
  EXPECT_EQ(ParseMemorySize("2Gi").value(), int64_t{2} << 30);
  EXPECT_EQ(ParseMemorySize("300M").value(), 300000000);
  ExpectBad([](const char* text) { return ParseMemorySize(text).status(); },
            {{"2", "with a unit"},
             {"-1Gi", "with a unit"},
             {"2GB", "such as 4096Mi"},
             {"9999E", "more than there is"}});
}

TEST(ResourcesTest, QuantitiesCompareAsNumbers) {
  EXPECT_EQ(QuantityValue("1500m"), QuantityValue("1.5"));
  EXPECT_EQ(QuantityValue("1Gi"), QuantityValue("1024Mi"));
  EXPECT_LT(QuantityValue("1G"), QuantityValue("1Gi"));
  EXPECT_LT(QuantityValue("5M"), QuantityValue("6000K"));
  EXPECT_EQ(QuantityValue("2E"), 2e18);
}

TEST(ResourcesTest, RefusesTheRest) {
  ExpectBad([](const char* t) { return ParseResources(t).status(); },
            {{"cpu", "'cpu' is not of the form name=quantity"},
             {"cpu=1,", "not of the form"},
             {"cpu=", "cpu=: expected a number"},
             {"cpu=01", "cpu=01"},
             {"cpu=.5", "cpu=.5"},
             {"cpu=1.", "cpu=1."},
             {"cpu=0", "cpu=0"},
             {"cpu=0.0", "cpu=0.0"},
             {"cpu=-1", "cpu=-1"},
             {"cpu=0.5m", "cpu=0.5m"},
             {"cpu=1e3", "cpu=1e3"},
             {"cpu=two", "such as 2, 0.5 or 500m"},
             {"memory=1024", "such as 4096Mi"},
             {"memory=01Gi", "memory=01Gi"},
             {"memory=1.5Gi", "memory=1.5Gi"},
             {"memory=4096mi", "memory=4096mi"},
             {"memory=Mi", "memory=Mi"},
             {"disk=10", "ephemeral-storage=10"},
             {"gpu=0.5", "whole number"},
             {"gpu=one", "whole number"},
             {"amd.com/gpu=x", "whole number"},
             {"/gpu=1", "'/gpu' is not a resource"},
             {"a..b/gpu=1", "not a resource"},
             {"a_b/gpu=1", "not a resource"},
             {"amd.com/tpu=1", "not a resource"},
             {"memroy=1Gi", "did you mean memory?"},
             {"cpu=1,cpu=2", "'cpu' is given twice"},
             {"gpu=1,nvidia.com/gpu=1", "given twice"}});
}

TEST(VolumesTest, Accepts) {
  EXPECT_THAT(ParseVolumes("").value(), IsEmpty());
  const auto volumes = ParseVolumes(
                           "claim_name=c1,mount_path=/data,sub_path=a;"
                           " host_path = /d , type=Directory, mount_path=/d2; ")
                           .value();
  ASSERT_EQ(volumes.size(), 2u);
  EXPECT_EQ(volumes[0].claim_name, "c1");
  EXPECT_EQ(volumes[0].mount_path, "/data");
  EXPECT_EQ(volumes[0].sub_path, "a");
  EXPECT_EQ(volumes[1].host_path, "/d");
  EXPECT_EQ(volumes[1].type, "Directory");
  // The tutorial of 2019.
  const auto old = ParseVolumes(
      "volume_name=data-volume,mount_path=/data,claim_name=fileserver-claim");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->at(0).claim_name, "fileserver-claim");
}

TEST(VolumesTest, Refuses) {
  ExpectBad([](const char* t) { return ParseVolumes(t).status(); },
            {{"claim_name=c", "needs mount_path"},
             {"mount_path=/d", "needs either claim_name or host_path"},
             {"claim_name=c,host_path=/h,mount_path=/d", "either"},
             {"claim_name=c,mount_path=d", "mount_path=d must begin with /"},
             {"host_path=h,mount_path=/d", "host_path=h must begin with /"},
             {"claim_name=c,type=File,mount_path=/d", "type goes with"},
             {"host_path=/h,type=Dir,mount_path=/d", "type=Dir is not one of"},
             {"claim_nam=c,mount_path=/d", "did you mean claim_name?"},
             {"claim_name=c,mount_path", "not of the form key=value"},
             {"claim_name=c,claim_name=d,mount_path=/d", "claim_name twice"},
             {"claim_name=,mount_path=/d", "no value for claim_name"},
             {"claim_name=c,mount_path=/d;claim_name=e,mount_path=/d",
              "mount_path=/d is used twice"}});
}

TEST(EnvsTest, LeavesValuesUnharmed) {
  EXPECT_THAT(ParseEnvs("").value(), IsEmpty());
  EXPECT_THAT(ParseEnvs("a=x=y").value(), ElementsAre(Pair("a", "x=y")));
  EXPECT_THAT(ParseEnvs("a=1,2,3,b=4").value(),
              ElementsAre(Pair("a", "1,2,3"), Pair("b", "4")));
  EXPECT_THAT(ParseEnvs("OPTS=--x=1 --y=2, B=").value(),
              ElementsAre(Pair("OPTS", "--x=1 --y=2"), Pair("B", "")));
  EXPECT_THAT(ParseEnvs("URL=http://h/?a=b&c=d,N=1").value(),
              ElementsAre(Pair("URL", "http://h/?a=b&c=d"), Pair("N", "1")));
  EXPECT_THAT(ParseEnvs("A=x\\,b=c,D=e").value(),
              ElementsAre(Pair("A", "x,b=c"), Pair("D", "e")));
  EXPECT_THAT(ParseEnvs("A=x,").value(), ElementsAre(Pair("A", "x,")));
}

TEST(EnvsTest, Refuses) {
  ExpectBad([](const char* t) { return ParseEnvs(t).status(); },
            {{"abc", "'abc' is not of the form NAME=value"},
             {"=x", "not of the form"},
             {"1A=x", "not of the form"},
             {"a b=x", "not of the form"},
             {"A=1,A=2", "'A' is given twice"}});
}

TEST(WorkerPriorityTest, SharesAndClasses) {
  const auto class_of = [](const char* text, int64_t index, int64_t n) {
    return ParseWorkerPriority(text).value().ClassOf(index, n);
  };
  EXPECT_EQ(class_of("", 0, 4), "");
  EXPECT_EQ(class_of("high", 3, 4), "high");
  EXPECT_EQ(class_of("low", 0, 4), "low");
  EXPECT_EQ(class_of("low-priority", 0, 4), "low-priority");
  for (const char* half : {"0.5", "high=0.5", "5e-1"}) {
    EXPECT_EQ(class_of(half, 0, 5), "high") << half;
    EXPECT_EQ(class_of(half, 1, 5), "high") << half;
    EXPECT_EQ(class_of(half, 2, 5), "low") << half;
  }
  EXPECT_EQ(class_of("0", 0, 4), "low");
  EXPECT_EQ(class_of("1", 3, 4), "high");
}

TEST(WorkerPriorityTest, Refuses) {
  ExpectBad([](const char* t) { return ParseWorkerPriority(t).status(); },
            {{"1.5", "between 0 and 1"},
             {"-0.5", "between 0 and 1"},
             {"nan", "between 0 and 1"},
             {"high=", "between 0 and 1"},
             {"high=two", "between 0 and 1"},
             {"high=2", "between 0 and 1"},
             {"High Priority", "PriorityClass"},
             {"low=0.5", "PriorityClass"}});
}

TEST(KeyValuesTest, Accepts) {
  EXPECT_THAT(ParseKeyValues("").value(), IsEmpty());
  EXPECT_THAT(ParseKeyValues("a=1; b = x y ;").value(),
              ElementsAre(Pair("a", "1"), Pair("b", "x y")));
  EXPECT_THAT(ParseKeyValues("columns=['a;b', \"c\"];n='x'").value(),
              ElementsAre(Pair("columns", "['a;b', \"c\"]"), Pair("n", "x")));
  EXPECT_THAT(ParseKeyValues("a=1,b=2").value(),
              ElementsAre(Pair("a", "1,b=2")));
  EXPECT_THAT(ParseKeyValues("q=a==b").value(), ElementsAre(Pair("q", "a==b")));
}

TEST(KeyValuesTest, AcceptsTheCommasOf2019) {
  EXPECT_THAT(ParseKeyValues("a=1,b=2, c=[1,2]", true).value(),
              ElementsAre(Pair("a", "1"), Pair("b", "2"), Pair("c", "[1,2]")));
  EXPECT_THAT(ParseKeyValues("sizes=1,2,3", true).value(),
              ElementsAre(Pair("sizes", "1,2,3")));
  EXPECT_THAT(ParseKeyValues("a=f(x=1,y=2),b=3", true).value(),
              ElementsAre(Pair("a", "f(x=1,y=2)"), Pair("b", "3")));
  EXPECT_THAT(ParseKeyValues("a=1,b=2;c=3", true).value(),
              ElementsAre(Pair("a", "1,b=2"), Pair("c", "3")));
}

TEST(KeyValuesTest, Refuses) {
  ExpectBad([](const char* t) { return ParseKeyValues(t, true).status(); },
            {{"abc", "'abc' is not of the form key=value"},
             {"a=1;b", "'b' is not of the form key=value"},
             {"=1", "not of the form"},
             {"1a=1", "'1a' is not a name"},
             {"a=1;a=2", "'a' is given twice"}});
}

TEST(AuxParamsTest, OnlyDisableRelaunch) {
  EXPECT_FALSE(ParseAuxParams("").value().disable_relaunch);
  EXPECT_TRUE(ParseAuxParams("disable_relaunch=true").value().disable_relaunch);
  EXPECT_FALSE(ParseAuxParams("disable_relaunch=no").value().disable_relaunch);
  ExpectBad([](const char* t) { return ParseAuxParams(t).status(); },
            {{"disable_relunch=true", "did you mean disable_relaunch?"},
             {"disable_relaunch=perhaps", "expected true or false"},
             {"disable_relaunch", "key=value"}});
}

TEST(AddressTest, Accepts) {
  EXPECT_EQ(ParseAddress("localhost:50001").value().host, "localhost");
  EXPECT_EQ(ParseAddress("localhost:50001").value().port, 50001);
  EXPECT_EQ(ParseAddress("[::1]:80").value().host, "::1");
  EXPECT_THAT(ParseAddresses("").value(), IsEmpty());
  EXPECT_EQ(ParseAddresses("a:1, b.c.svc:2222").value().size(), 2u);
  EXPECT_EQ(ParseAddresses("a:1,b.c.svc:2222").value()[1].host, "b.c.svc");
}

TEST(AddressTest, Refuses) {
  ExpectBad([](const char* t) { return ParseAddresses(t).status(); },
            {{"localhost", "host:port"},
             {":1", "host:port"},
             {"h:", "between 1 and 65535"},
             {"h:0", "between 1 and 65535"},
             {"h:65536", "between 1 and 65535"},
             {"h:+1", "between 1 and 65535"},
             {"h:1x", "between 1 and 65535"},
             {"::1:80", "[address]:port"},
             {"a b:1", "host:port"},
             {"a:1,,b:2", "host:port"}});
}

TEST(NamesTest, KubernetesNames) {
  EXPECT_TRUE(CheckKubeName("", 63, false).ok());
  EXPECT_TRUE(CheckKubeName("test-mnist1", 63, false).ok());
  EXPECT_TRUE(CheckKubeName("a.b", 63, true).ok());
  ExpectBad([](const char* t) { return CheckKubeName(t, 10, false); },
            {{"Test", "no Kubernetes name"},
             {"a_b", "no Kubernetes name"},
             {"-a", "no Kubernetes name"},
             {"a-", "no Kubernetes name"},
             {"a.b", "no Kubernetes name"},
             {"abcdefghijk", "at most 10"}});
}

TEST(NamesTest, ImagesRegexesAndJson) {
  EXPECT_TRUE(CheckImageName("registry.example.com:5000/a/b:1.0").ok());
  EXPECT_FALSE(CheckImageName("a b").ok());
  EXPECT_TRUE(CheckRegex("").ok());
  EXPECT_TRUE(CheckRegex("HTTP_.*|NO_PROXY").ok());
  EXPECT_FALSE(CheckRegex("a(").ok());
  EXPECT_TRUE(CheckClusterSpecJson("").ok());
  EXPECT_TRUE(
      CheckClusterSpecJson(R"({"pod_spec": {"labels": {"a": "b"}}})").ok());
  ExpectBad([](const char* t) { return CheckClusterSpecJson(t); },
            {{"{", "not a JSON object"},
             {"[]", "not a JSON object"},
             {R"({"podspec": {}})", "did you mean pod_spec?"},
             {R"({"pod_spec": 1})", "must hold a JSON object"}});
}

}  // namespace
}  // namespace elasticdl::flags
