// With a real Docker engine, where there is one: DOCKER_HOST or the usual
// socket. K8S_TESTS=False turns it off. For TLS:
//   ELASTICDL_TEST_DOCKER_TLS     tcp://HOST:PORT of an engine
//   ELASTICDL_TEST_DOCKER_CERTS   folder with ca.pem, cert.pem, key.pem for it
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/docker/engine.h"
#include "support/temp_dir.h"

namespace elasticdl::docker {
namespace {

using ::testing::HasSubstr;

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class RealEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Env("K8S_TESTS") == "False") GTEST_SKIP() << "K8S_TESTS=False";
    EngineOptions options;
    options.host = Env("DOCKER_HOST");
    options.config_dir = dir_.Path("config");
    auto engine = Engine::Connect(options);
    if (!engine.ok()) GTEST_SKIP() << "no engine: " << engine.status();
    engine_ = std::move(*engine);
    ASSERT_TRUE(MakeDirectories(dir_.Path("zoo")).ok());
    build_.context.folder = dir_.Path("zoo");
    build_.image = "elasticdl-test:engine";
  }
  absl::StatusOr<std::string> Build(const std::string& dockerfile) {
    build_.context.dockerfile_text = dockerfile;
    return engine_->Build(
        build_, [this](const Progress& progress) { shown_ += progress.text; });
  }

  const test::TempDir dir_;
  BuildOptions build_;
  std::unique_ptr<Engine> engine_;
  std::string shown_;
};

TEST_F(RealEngineTest, BuildsFromScratch) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/hello"), "hello\n").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/.dockerignore"), "no*\n").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/no"), "").ok());
  ASSERT_TRUE(
      WriteFileAtomic(dir_.Path("zoo/" + std::string(180, 'n') + "l"), "")
          .ok());
  // The time makes it a new image, not one of the cache.
  const std::string label =
      absl::StrCat("LABEL made=", absl::ToUnixNanos(absl::Now()), "\n");
  const auto id = Build("FROM scratch\nCOPY hello /hello\n" + label);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_THAT(shown_, HasSubstr("Step 2/3 : COPY hello /hello"));
  EXPECT_EQ(engine_->ImageId("elasticdl-test:engine").value(), *id);
  // What is ignored is not there to be copied.
  const absl::Status missing = Build("FROM scratch\nCOPY no /no\n").status();
  EXPECT_TRUE(absl::IsAborted(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("step 2/2 : COPY no"));
}

TEST_F(RealEngineTest, ErrorsOfTheDockerfile) {
  const absl::Status status = Build("FORM scratch\n").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("FORM"));
}

TEST_F(RealEngineTest, PushOfWhatIsNotThere) {
  const absl::Status status =
      engine_->Push("localhost:5000/elasticdl-test-none:1", nullptr);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

// Needs an image with a shell: ELASTICDL_TEST_IMAGE.
TEST_F(RealEngineTest, CancelEndsTheBuild) {
  const std::string base = Env("ELASTICDL_TEST_IMAGE");
  if (base.empty()) GTEST_SKIP() << "ELASTICDL_TEST_IMAGE is not set";
  Queue<bool> began(100);
  build_.no_cache = true;
  build_.context.dockerfile_text =
      absl::StrCat("FROM ", base, "\nRUN echo be''gan; tail -f /dev/null\n");
  absl::Status status;
  Thread build("build", [&] {
    status = engine_
                 ->Build(build_,
                         [&](const Progress& progress) {
                           if (progress.text == "began\n") began.Push(true);
                         })
                 .status();
  });
  const bool in_time = began.Pop(absl::Seconds(120)).has_value();
  engine_->Cancel();
  build.Join();
  EXPECT_TRUE(in_time);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

class TlsEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Env("K8S_TESTS") == "False") GTEST_SKIP() << "K8S_TESTS=False";
    options_.host = Env("ELASTICDL_TEST_DOCKER_TLS");
    options_.cert_path = Env("ELASTICDL_TEST_DOCKER_CERTS");
    options_.tls_verify = true;
    options_.config_dir = dir_.Path("config");
    if (options_.host.empty() || options_.cert_path.empty()) {
      GTEST_SKIP() << "ELASTICDL_TEST_DOCKER_TLS or _CERTS is not set";
    }
  }
  // A folder of certificates like the right one; the caller spoils it.
  void CopyCertificates() {
    ASSERT_TRUE(MakeDirectories(dir_.Path("certs")).ok());
    for (const char* name : {"ca.pem", "cert.pem", "key.pem"}) {
      const auto text = ReadFile(JoinPath(options_.cert_path, name));
      ASSERT_TRUE(text.ok()) << text.status();
      ASSERT_TRUE(
          WriteFileAtomic(JoinPath(dir_.Path("certs"), name), *text).ok());
    }
    options_.cert_path = dir_.Path("certs");
  }

  const test::TempDir dir_;
  EngineOptions options_;
};

TEST_F(TlsEngineTest, Builds) {
  const auto engine = Engine::Connect(options_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE(MakeDirectories(dir_.Path("zoo")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/hello"), "hello\n").ok());
  BuildOptions build;
  build.context.folder = dir_.Path("zoo");
  build.context.dockerfile_text = "FROM scratch\nCOPY hello /hello\n";
  build.image = "elasticdl-test:tls";
  const auto id = (*engine)->Build(build, [](const Progress&) {});
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ((*engine)->ImageId("elasticdl-test:tls").value(), *id);
}

TEST_F(TlsEngineTest, ServerOfAnotherAuthorityIsRefused) {
  ASSERT_NO_FATAL_FAILURE(CopyCertificates());
  // Signed by the authority, but none itself.
  const auto stranger = ReadFile(JoinPath(options_.cert_path, "cert.pem"));
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(options_.cert_path, "ca.pem"), *stranger).ok());
  const absl::Status status = Engine::Connect(options_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("certificate"));
}

TEST_F(TlsEngineTest, PlainConnectionIsRefused) {
  options_.tls_verify = false;
  const absl::Status status = Engine::Connect(options_).status();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace elasticdl::docker
