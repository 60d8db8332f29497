// Names of images and their parts.
#include "elasticdl/docker/image_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elasticdl::docker {
namespace {

TEST(ImageNameTest, Parts) {
  const struct {
    const char* text;
    const char* registry;
    const char* repository;
    const char* tag;
  } kCases[] = {
      {"zoo", "docker.io", "zoo", "latest"},
      {"zoo:1", "docker.io", "zoo", "1"},
      {"me/zoo", "docker.io", "me/zoo", "latest"},
      {"localhost/zoo", "localhost", "localhost/zoo", "latest"},
      {"localhost:5000/zoo", "localhost:5000", "localhost:5000/zoo", "latest"},
      {"192.0.2.1:5000/a/b:v1.0_x-Y", "192.0.2.1:5000", "192.0.2.1:5000/a/b",
       "v1.0_x-Y"},
      {"gcr.io/project/zoo:1", "gcr.io", "gcr.io/project/zoo", "1"},
      {"docker.io/me/zoo", "docker.io", "docker.io/me/zoo", "latest"},
  };
  for (const auto& one : kCases) {
    const absl::StatusOr<ImageName> name = ParseImageName(one.text);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->registry, one.registry) << one.text;
    EXPECT_EQ(name->repository, one.repository) << one.text;
    EXPECT_EQ(name->tag, one.tag) << one.text;
    EXPECT_EQ(name->digest, "");
  }
  EXPECT_EQ(ParseImageName("a/b@sha256:12")->digest, "sha256:12");
}

TEST(ImageNameTest, WhatTheEngineWouldRefuse) {
  for (const char* bad :
       {"", "Zoo", "me/Zoo:1", "a//b", "/a", "a/", "a:", "a:b c", "a:-x", "-a",
        "a/b?x=1", "a/../b", "gcr.io/"}) {
    const absl::Status status = ParseImageName(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(bad));
  }
  EXPECT_FALSE(ParseImageName("a:" + std::string(129, 'x')).ok());
}

}  // namespace
}  // namespace elasticdl::docker
