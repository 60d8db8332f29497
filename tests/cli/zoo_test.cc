// `elasticdl zoo` and images made at submission, against a fake engine.
#include "zoo/zoo.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <atomic>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "docker/fake_engine.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "support/temp_dir.h"
#include "zoo/job_image.h"

namespace elasticdl::cli {
namespace {

using docker::FakeEngine;
using docker::QueryValues;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr char kBuilt[] =
    "{\"stream\":\"Step 1/1 : FROM a\\n\"}\r\n"
    "{\"aux\":{\"ID\":\"sha256:abc\"}}\r\n";

struct Outcome {
  int status = -1;
  int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
  std::string out;
  std::string err;
};

class ZooCommandTest : public ::testing::Test {
 protected:
  ZooCommandTest() : socket_(dir_.Path("docker.sock")) {
    // For what runs in this process; the program inherits it.
    setenv("DOCKER_HOST", absl::StrCat("unix://", socket_).c_str(), 1);
    setenv("DOCKER_CONFIG", dir_.Path("config").c_str(), 1);
    EXPECT_TRUE(MakeDirectories(dir_.Path("zoo/mnist")).ok());
    EXPECT_TRUE(
        WriteFileAtomic(dir_.Path("zoo/mnist/net.cc"), "Net custom_model();")
            .ok());
  }
  void StartEngine(FakeEngine::Handler handler) {
    fake_ = std::make_unique<FakeEngine>(socket_, "1.41", std::move(handler));
  }
  pid_t Spawn(std::vector<std::string> args) {
    args.insert(args.begin(), ELASTICDL_PROGRAM);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, dir_.Path("out").c_str(),
                                     flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, dir_.Path("err").c_str(),
                                     flags, 0600);
    posix_spawn_file_actions_addchdir_np(&actions, dir_.path().c_str());
    pid_t pid = 0;
    ELASTICDL_CHECK(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(),
                                environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }
  Outcome Wait(pid_t pid) {
    Outcome outcome;
    ELASTICDL_CHECK(waitpid(pid, &outcome.status, 0) == pid);
    outcome.out = ReadFile(dir_.Path("out")).value();
    outcome.err = ReadFile(dir_.Path("err")).value();
    return outcome;
  }
  Outcome Run(const std::vector<std::string>& args) {
    return Wait(Spawn(args));
  }

  const test::TempDir dir_;
  const std::string socket_;
  std::unique_ptr<FakeEngine> fake_;
};

FakeEngine::Handler Answer(int code, const std::string& body) {
  return [=](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Send(code, body);
  };
}

TEST_F(ZooCommandTest, InitBuildPush) {
  StartEngine([](const FakeEngine::Request& request, FakeEngine::Reply& reply) {
    reply.Send(200, absl::StrContains(request.target, "/build?")
                        ? kBuilt
                        : "{\"status\":\"Pushed\",\"id\":\"l\"}\r\n");
  });
  EXPECT_EQ(Run({"zoo", "init", "--model_zoo=zoo"}).exit_code(), 0);
  const Outcome build = Run({"zoo", "build", "--image=reg.example.com/me/zoo:1",
                             "--network=host", "--build_args=A=x=1,B=y", "."});
  EXPECT_EQ(build.exit_code(), 0) << build.err;
  EXPECT_THAT(build.out, HasSubstr("Step 1/1 : FROM a\n"));
  EXPECT_THAT(build.out, HasSubstr("Next: elasticdl zoo push"));
  const std::string target = fake_->requests()[0].target;
  EXPECT_THAT(QueryValues(target, "t"),
              ElementsAre("reg.example.com/me/zoo:1"));
  EXPECT_THAT(QueryValues(target, "dockerfile"), ElementsAre("Dockerfile"));
  EXPECT_THAT(QueryValues(target, "networkmode"), ElementsAre("host"));
  EXPECT_THAT(QueryValues(target, "buildargs"),
              ElementsAre("{\"A\":\"x=1\",\"B\":\"y\"}"));
  EXPECT_THAT(fake_->requests()[0].body, HasSubstr("Net custom_model();"));

  const Outcome push = Run({"zoo", "push", "reg.example.com/me/zoo:1"});
  EXPECT_EQ(push.exit_code(), 0) << push.err;
  EXPECT_EQ(push.out, "l: Pushed\nPushed reg.example.com/me/zoo:1\n");
}

TEST_F(ZooCommandTest, DockerfileIsFound) {
  StartEngine(Answer(200, kBuilt));
  const Outcome none = Run({"zoo", "build", "--image=a", "zoo"});
  EXPECT_EQ(none.exit_code(), 1);
  EXPECT_EQ(none.err,
            "elasticdl zoo build: there is neither ./Dockerfile nor "
            "zoo/Dockerfile; elasticdl zoo init writes one\n");
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/Dockerfile"), "FROM z\n").ok());
  ASSERT_EQ(Run({"zoo", "build", "--image=a", "zoo"}).exit_code(), 0);
  EXPECT_THAT(fake_->requests()[0].target, HasSubstr("dockerfile=Dockerfile"));
  // ./Dockerfile comes first; it is not in the context.
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Dockerfile"), "FROM here\n").ok());
  ASSERT_EQ(Run({"zoo", "build", "--image=a", "zoo"}).exit_code(), 0);
  EXPECT_THAT(fake_->requests()[1].target,
              HasSubstr("dockerfile=.dockerfile."));
  EXPECT_THAT(fake_->requests()[1].body, HasSubstr("FROM here\n"));
}

TEST_F(ZooCommandTest, FailedBuildIsExitCodeOne) {
  StartEngine(Answer(200,
                     "{\"stream\":\"Step 2/2 : RUN make\\n\"}"
                     "{\"stream\":\"no rule\\n\"}{\"error\":\"code: 2\"}"));
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Dockerfile"), "FROM a\n").ok());
  const Outcome outcome = Run({"zoo", "build", "--image=a:1", "."});
  EXPECT_EQ(outcome.exit_code(), 1);
  EXPECT_THAT(outcome.out, HasSubstr("no rule\n"));
  EXPECT_EQ(outcome.err,
            "elasticdl zoo build: build a:1: step 2/2 : RUN make: code: 2\n");
}

TEST_F(ZooCommandTest, NoEngine) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Dockerfile"), "FROM a\n").ok());
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"zoo", "build", "--image=a", "."},
        {"zoo", "push", "a"}}) {
    const Outcome outcome = Run(args);
    EXPECT_EQ(outcome.exit_code(), 1);
    EXPECT_THAT(outcome.err,
                HasSubstr(absl::StrCat("the Docker engine at unix://", socket_,
                                       " is not running")));
  }
}

// The engine stops the build when the connection closes.
TEST_F(ZooCommandTest, InterruptEndsTheBuild) {
  Queue<bool> building(1);
  Queue<bool> hangups(1);
  StartEngine(
      [&](const FakeEngine::Request& request, FakeEngine::Reply& reply) {
        if (absl::EndsWith(request.target, "/json"))
          return reply.Send(404, "{}");
        reply.Begin(200);
        building.Push(true);
        hangups.Push(reply.WaitForHangup());
      });
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("Dockerfile"), "FROM a\n").ok());
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"zoo", "build", "--image=a", "."},
        // Waits for signals when it has submitted, not now.
        {"train", "--docker_image_prefix=reg.example.com", "--job_name=j",
         "--model_zoo=zoo", "--model_def=mnist.net.custom_model",
         "--training_data=/d", "--yaml=job.yaml"}}) {
    const pid_t pid = Spawn(args);
    EXPECT_TRUE(building.Pop(absl::Seconds(30)).has_value());
    ASSERT_EQ(kill(pid, SIGINT), 0);
    const Outcome outcome = Wait(pid);
    EXPECT_TRUE(WIFSIGNALED(outcome.status)) << outcome.status;
    EXPECT_EQ(hangups.Pop(absl::Seconds(30)), true);
  }
}

TEST_F(ZooCommandTest, NothingIsBuiltForAJobThatCannotBeSubmitted) {
  std::atomic<int> asked{0};
  StartEngine([&](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    ++asked;
    reply.Send(404, "{}");
  });
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("kubeconfig"), R"({
      "apiVersion": "v1", "kind": "Config", "current-context": "c",
      "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
      "users": [{"name": "u", "user": {}}],
      "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]})")
                  .ok());
  setenv("KUBECONFIG", dir_.Path("kubeconfig").c_str(), 1);
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"train",
                                     "--docker_image_prefix=reg.example.com",
                                     "--job_name=j",
                                     "--model_zoo=zoo",
                                     "--model_def=mnist.net.custom_model",
                                     "--training_data=/d"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = Run(args);
    EXPECT_NE(outcome.exit_code(), 0);
    EXPECT_EQ(asked, 0) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(train({}), HasSubstr("no answer from the cluster"));
  EXPECT_THAT(train({"--model_def=mnist.no_such.custom_model"}),
              HasSubstr("there is no zoo/mnist/no_such.cc"));
  EXPECT_THAT(train({"--cluster_spec_json={\"pod_spec\":7}"}),
              HasSubstr("pod_spec"));
  unsetenv("KUBECONFIG");
}

TEST_F(ZooCommandTest, PrepareImageBuildsAndPushes) {
  StartEngine([](const FakeEngine::Request& request, FakeEngine::Reply& reply) {
    if (absl::EndsWith(request.target, "/json")) {
      reply.Send(200, "{\"Id\":\"sha256:base\"}");
    } else {
      reply.Send(200,
                 absl::StrContains(request.target, "/build?") ? kBuilt : "{}");
    }
  });
  flags::JobFlags flags;
  flags.docker_image_prefix = "reg.example.com/user/";
  flags.image_base = "elasticdl:ci";
  flags.model_zoo = dir_.Path("zoo");
  flags.job_name = "test-mnist";
  ASSERT_TRUE(BuildsImage(flags));
  const absl::StatusOr<std::string> image = PrepareImage(flags);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(*image,
              MatchesRegex("reg.example.com/user/test-mnist:[0-9a-f]{12}"));
  const auto requests = fake_->requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_THAT(requests[0].target, HasSubstr("/images/elasticdl:ci/json"));
  EXPECT_THAT(QueryValues(requests[1].target, "t"), ElementsAre(*image));
  EXPECT_THAT(requests[1].body,
              HasSubstr("FROM elasticdl:ci\n"
                        "COPY --chown=1000:0 . /model_zoo\n"
                        "RUN elasticdl-compile-zoo /model_zoo \\\n"
                        "    mnist.net.custom_model\n"));
  EXPECT_THAT(requests[2].target,
              HasSubstr("/images/reg.example.com/user/test-mnist/push?tag="));
  // The same content, the same name; another content, another name.
  EXPECT_EQ(PrepareImage(flags).value(), *image);
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/mnist/net.cc"), "changed").ok());
  EXPECT_NE(PrepareImage(flags).value(), *image);
}

TEST_F(ZooCommandTest, PrepareImageTakesWhatIsThere) {
  flags::JobFlags flags;
  flags.image = "reg.example.com/zoo:1";
  flags.docker_image_prefix = "unused";
  EXPECT_FALSE(BuildsImage(flags));
  EXPECT_EQ(PrepareImage(flags).value(), "reg.example.com/zoo:1");
}

TEST_F(ZooCommandTest, PrepareImageNeedsALocalZoo) {
  flags::JobFlags flags;
  flags.docker_image_prefix = "reg.example.com";
  flags.job_name = "j";
  EXPECT_TRUE(absl::IsInvalidArgument(PrepareImage(flags).status()));
  flags.model_zoo = "/model_zoo-that-is-not-here";
  const absl::Status status = PrepareImage(flags).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--image"));
}

}  // namespace
}  // namespace elasticdl::cli
