// The engine's client against an engine whose answers the test writes.
#include "elasticdl/docker/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "docker/fake_engine.h"
#include "elasticdl/common/queue.h"
#include "engine_host.h"
#include "support/temp_dir.h"

namespace elasticdl::docker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kBuilt[] =
    "{\"stream\":\"Step 1/1 : FROM a\\n\"}\r\n"
    "{\"aux\":{\"ID\":\"sha256:abc\"}}\r\n"
    "{\"stream\":\"Successfully built abc\\n\"}\r\n";

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : socket_(dir_.Path("docker.sock")) {
    options_.host = absl::StrCat("unix://", socket_);
    options_.config_dir = dir_.Path("config");
    EXPECT_TRUE(MakeDirectories(options_.config_dir).ok());
    EXPECT_TRUE(MakeDirectories(dir_.Path("zoo")).ok());
    EXPECT_TRUE(WriteFileAtomic(dir_.Path("zoo/Dockerfile"), "FROM a\n").ok());
    build_.context.folder = dir_.Path("zoo");
    build_.context.dockerfile = dir_.Path("zoo/Dockerfile");
    build_.image = "localhost:5000/zoo:1";
  }

  void Start(FakeEngine::Handler handler, const std::string& version = "1.41") {
    fake_ = std::make_unique<FakeEngine>(socket_, version, std::move(handler));
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Connect(options_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = std::move(*engine);
  }

  ProgressCallback Collect() {
    return [this](const Progress& progress) {
      shown_ += absl::StrCat(progress.text, progress.status);
    };
  }

  const test::TempDir dir_;
  const std::string socket_;
  EngineOptions options_;
  BuildOptions build_;
  std::unique_ptr<FakeEngine> fake_;
  std::unique_ptr<Engine> engine_;
  std::string shown_;
};

FakeEngine::Handler Answer(int code, const std::string& body) {
  return [=](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Send(code, body);
  };
}

TEST_F(EngineTest, AgreesOnAVersion) {
  const std::pair<const char*, const char*> kCases[] = {
      {"1.41", "1.41"}, {"1.52", "1.47"},     {"1.30", "1.30"},
      {"", "1.24"},     {"nonsense", "1.24"},
  };
  for (const auto& [offered, chosen] : kCases) {
    unlink(socket_.c_str());
    Start(Answer(200, "{}"), offered);
    EXPECT_EQ(engine_->api_version(), chosen) << offered;
  }
}

TEST_F(EngineTest, BuildSendsContextAndOptions) {
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/model.cc"), "int i;").ok());
  Start(Answer(200, kBuilt));
  build_.network = "host";
  build_.target = "worker";
  build_.pull = true;
  build_.build_args = {{"A", "x & y"}, {"B", "="}};
  const absl::StatusOr<std::string> id = engine_->Build(build_, Collect());
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, "sha256:abc");
  EXPECT_EQ(shown_, "Step 1/1 : FROM a\nSuccessfully built abc\n");
  ASSERT_EQ(fake_->requests().size(), 1u);
  const FakeEngine::Request request = fake_->requests()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_THAT(request.target, StartsWith("/v1.41/build?"));
  EXPECT_EQ(request.headers.at("content-type"), "application/x-tar");
  EXPECT_EQ(request.headers.count("expect"), 0u);
  const auto query = [&](const char* key) {
    return QueryValues(request.target, key);
  };
  EXPECT_THAT(query("t"), ElementsAre("localhost:5000/zoo:1"));
  EXPECT_THAT(query("dockerfile"), ElementsAre("Dockerfile"));
  EXPECT_THAT(query("networkmode"), ElementsAre("host"));
  EXPECT_THAT(query("target"), ElementsAre("worker"));
  EXPECT_THAT(query("pull"), ElementsAre("1"));
  EXPECT_THAT(query("nocache"), IsEmpty());
  EXPECT_THAT(query("buildargs"), ElementsAre("{\"A\":\"x & y\",\"B\":\"=\"}"));
  // Two files of one block each with their headers, and the end.
  EXPECT_EQ(request.body.size(), 512u * (2 + 2 + 2));
  EXPECT_THAT(request.body, HasSubstr("int i;"));
}

TEST_F(EngineTest, BuildStreamsBigFiles) {
  // Many times what libcurl and the socket hold at once.
  const std::string big(20'000'000, 'x');
  ASSERT_TRUE(WriteFileAtomic(dir_.Path("zoo/big"), big).ok());
  Start(Answer(200, kBuilt));
  ASSERT_TRUE(engine_->Build(build_, nullptr).ok());
  EXPECT_TRUE(absl::StrContains(fake_->requests()[0].body, big));
}

TEST_F(EngineTest, AnswersComeInPieces) {
  Start([](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Begin(200);
    for (const char* c = kBuilt; *c != '\0'; ++c) {
      reply.Chunk(absl::string_view(c, 1));
    }
    reply.End();
  });
  EXPECT_TRUE(engine_->Build(build_, Collect()).ok());
  EXPECT_THAT(shown_, HasSubstr("Successfully built"));
}

TEST_F(EngineTest, FailedStepIsNamed) {
  Start(Answer(
      200,
      "{\"stream\":\"Step 1/3 : FROM a\\n\"}\r\n"
      "{\"stream\":\"Step 2/3 : RUN false\\n\"}\r\n"
      "{\"stream\":\" ---\\u003e Running in 1\\n\"}\r\n"
      "{\"errorDetail\":{\"code\":1,\"message\":\"m\"},\"error\":\"The command "
      "'/bin/sh -c false' returned a non-zero code: 1\"}\r\n"));
  const absl::Status status = engine_->Build(build_, Collect()).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(status.message(),
            "build localhost:5000/zoo:1: step 2/3 : RUN false: The command "
            "'/bin/sh -c false' returned a non-zero code: 1");
}

TEST_F(EngineTest, RefusedBuildHasTheEnginesWords) {
  Start(Answer(400, "{\"message\":\"dockerfile parse error line 1\"}\n"));
  const absl::Status status = engine_->Build(build_, nullptr).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(),
            "build localhost:5000/zoo:1: dockerfile parse error line 1");
}

TEST_F(EngineTest, RefusalBeforeAllIsSent) {
  ASSERT_TRUE(
      WriteFileAtomic(dir_.Path("zoo/big"), std::string(5'000'000, 'x')).ok());
  Start([](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Send(403, "{\"message\":\"not here\"}");
    reply.WaitForHangup();
  });
  build_.target = "refuse-early";
  const absl::Status status = engine_->Build(build_, nullptr).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not here"));
}

TEST_F(EngineTest, AnswersThatAreNone) {
  const std::pair<const char*, absl::StatusCode> kCases[] = {
      {"", absl::StatusCode::kUnavailable},
      {"{\"stream\":\"Step 1/1", absl::StatusCode::kUnavailable},
      {"{\"stream\":\"half way\"}", absl::StatusCode::kUnavailable},
      {"<html>", absl::StatusCode::kDataLoss},
      {"{\"stream\":7,\"aux\":[],\"error\":{}}",
       absl::StatusCode::kUnavailable},
  };
  for (const auto& [body, code] : kCases) {
    unlink(socket_.c_str());
    Start(Answer(200, body));
    EXPECT_EQ(engine_->Build(build_, nullptr).status().code(), code) << body;
  }
}

TEST_F(EngineTest, ConnectionThatBreaks) {
  Start([](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Begin(200);
    reply.Chunk("{\"stream\":\"Step 1/1 : FROM a\\n\"}");
  });
  const absl::Status status = engine_->Build(build_, nullptr).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.host));
}

// The engine stops a build when the connection closes.
TEST_F(EngineTest, CancelClosesTheConnection) {
  // The engine's thread may still be busy with it when the test ends.
  const auto hangups = std::make_shared<Queue<bool>>(1);
  Start([hangups](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    reply.Begin(200);
    reply.Chunk("{\"stream\":\"Step 1/1 : RUN sleep\\n\"}");
    hangups->Push(reply.WaitForHangup());
  });
  Queue<bool> began(1);
  absl::Status status;
  Thread build("build", [&] {
    status = engine_->Build(build_, [&](const Progress&) { began.Push(true); })
                 .status();
  });
  ASSERT_TRUE(began.Pop(absl::Seconds(30)).has_value());
  engine_->Cancel();
  build.Join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(hangups->Pop(absl::Seconds(30)), true);
  EXPECT_TRUE(absl::IsCancelled(engine_->Push("a/b:1", nullptr)));
}

TEST_F(EngineTest, PushSendsNameTagAndCredentials) {
  ASSERT_TRUE(WriteFileAtomic(JoinPath(options_.config_dir, "config.json"),
                              "{\"auths\":{\"localhost:5000\":{\"auth\":\"" +
                                  absl::Base64Escape("me:pass:word?>") +
                                  "\"}}}")
                  .ok());
  Start(Answer(200,
               "{\"status\":\"The push refers to repository\"}\r\n"
               "{\"status\":\"Pushing\",\"progressDetail\":{\"current\":5,"
               "\"total\":10},\"progress\":\"[=>]\",\"id\":\"aa\"}\r\n"
               "{\"status\":\"Pushed\",\"progressDetail\":{},\"id\":\"aa\"}\r\n"
               "{\"progressDetail\":{},\"aux\":{\"Tag\":\"1\"}}\r\n"));
  std::vector<Progress> shown;
  const absl::Status status =
      engine_->Push("localhost:5000/me/zoo:1",
                    [&](const Progress& one) { shown.push_back(one); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(shown.size(), 4u);
  EXPECT_EQ(shown[1].id, "aa");
  EXPECT_EQ(shown[1].current, 5);
  EXPECT_EQ(shown[1].total, 10);
  const FakeEngine::Request request = fake_->requests()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/v1.41/images/localhost:5000/me/zoo/push?tag=1");
  const std::string auth = request.headers.at("x-registry-auth");
  EXPECT_EQ(auth.size() % 4, 0u) << "padding is missing: " << auth;
  EXPECT_THAT(auth, Not(HasSubstr("/")));
  std::string text;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(auth, &text));
  const auto sent = nlohmann::json::parse(text);
  EXPECT_EQ(sent["username"], "me");
  EXPECT_EQ(sent["password"], "pass:word?>");
  EXPECT_EQ(sent["serveraddress"], "localhost:5000");
}

TEST_F(EngineTest, PushErrors) {
  const std::tuple<const char*, absl::StatusCode, const char*> kCases[] = {
      {"denied: requested access to the resource is denied",
       absl::StatusCode::kPermissionDenied, "docker login localhost:5000"},
      {"unauthorized: authentication required",
       absl::StatusCode::kPermissionDenied, "docker login"},
      {"An image does not exist locally with the tag: x",
       absl::StatusCode::kNotFound, "push localhost:5000/x:1: An image"},
      {"dial tcp: connection refused", absl::StatusCode::kUnavailable,
       "connection refused"},
  };
  for (const auto& [error, code, says] : kCases) {
    unlink(socket_.c_str());
    Start(Answer(200, absl::StrCat("{\"errorDetail\":{},\"error\":\"", error,
                                   "\"}\r\n")));
    const absl::Status status = engine_->Push("localhost:5000/x:1", nullptr);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(engine_->Push("a@sha256:1", nullptr)));
}

TEST_F(EngineTest, LogsInAtTheRegistriesOfDockerLogin) {
  const std::string config = absl::StrCat(
      R"({"auths":{"reg.example:5000":{"auth":")",
      absl::Base64Escape("me:geheim"), R"("},"empty.example":{}}})");
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(options_.config_dir, "config.json"), config)
          .ok());
  std::atomic<int> code = 200;
  Start([&](const FakeEngine::Request&, FakeEngine::Reply& reply) {
    const bool refused = code == 401;
    reply.Send(code, refused ? R"({"message":"incorrect username"})"
                             : R"({"message":"dial tcp: no such host"})");
  });
  EXPECT_THAT(engine_->Registries(),
              ElementsAre("empty.example", "reg.example:5000"));
  const auto check = [&](const std::string& registry) {
    return engine_->CheckLogin(registry, absl::Seconds(10));
  };
  EXPECT_TRUE(check("reg.example:5000").ok());
  ASSERT_EQ(fake_->requests().size(), 1u);
  EXPECT_EQ(fake_->requests()[0].target, "/v1.41/auth");
  const auto sent = nlohmann::json::parse(fake_->requests()[0].body);
  EXPECT_EQ(sent.at("username"), "me");
  EXPECT_EQ(sent.at("password"), "geheim");
  EXPECT_EQ(sent.at("serveraddress"), "reg.example:5000");
  EXPECT_TRUE(absl::IsNotFound(check("empty.example")));
  code = 401;
  const absl::Status refused = check("reg.example:5000");
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("reg.example:5000: incorrect username"));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("geheim")));
  code = 500;
  EXPECT_TRUE(absl::IsUnavailable(check("reg.example:5000")));
}

TEST_F(EngineTest, ImageId) {
  Start([](const FakeEngine::Request& request, FakeEngine::Reply& reply) {
    if (request.target == "/v1.41/images/a/b:1/json") {
      reply.Send(200, "{\"Id\":\"sha256:1\"}");
    } else {
      reply.Send(404, "{\"message\":\"No such image: c\"}");
    }
  });
  EXPECT_EQ(engine_->ImageId("a/b:1").value(), "sha256:1");
  EXPECT_TRUE(absl::IsNotFound(engine_->ImageId("c").status()));
}

TEST_F(EngineTest, EngineThatIsNotThere) {
  absl::Status status = Engine::Connect(options_).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("the Docker engine at unix://", socket_,
                                     " is not running")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("DOCKER_HOST"));
  // A socket that somebody left behind.
  Start(Answer(200, "{}"));
  fake_.reset();
  status = Engine::Connect(options_).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(EngineTest, SocketOfOthers) {
  if (geteuid() == 0) GTEST_SKIP() << "root may use every socket";
  Start(Answer(200, "{}"));
  ASSERT_EQ(chmod(socket_.c_str(), 0), 0);
  const absl::Status status = Engine::Connect(options_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("usermod -aG"));
}

TEST_F(EngineTest, BrokenConfigurationIsTold) {
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(options_.config_dir, "config.json"), "{").ok());
  const absl::Status status = Engine::Connect(options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("config.json"));
}

TEST(EngineHostTest, Forms) {
  EngineOptions options;
  EXPECT_EQ(ResolveEngine(options)->socket, "/var/run/docker.sock");
  options.host = "unix:///a/b";
  EXPECT_EQ(ResolveEngine(options)->socket, "/a/b");
  options.host = "unix://var/run/docker.sock";
  EXPECT_EQ(ResolveEngine(options)->socket, "/var/run/docker.sock");
  options.host = "tcp://host";
  EXPECT_EQ(ResolveEngine(options)->base_url, "http://host:2375");
  options.host = "tcp://host:1234/";
  EXPECT_EQ(ResolveEngine(options)->base_url, "http://host:1234");
  for (const char* bad : {"ssh://me@host", "npipe:////./pipe", "/run/x",
                          "tcp://", "tcp://a/b", "fd://"}) {
    options.host = bad;
    const absl::Status status = ResolveEngine(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad));
  }
}

TEST(EngineHostTest, TlsNeedsItsFiles) {
  const test::TempDir dir;
  EngineOptions options;
  options.host = "tcp://host";
  options.tls_verify = true;
  options.cert_path = dir.path();
  for (const char* file : {"ca.pem", "cert.pem", "key.pem"}) {
    const absl::Status status = ResolveEngine(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir.Path(file)));
    ASSERT_TRUE(WriteFileAtomic(dir.Path(file), "x").ok());
  }
  const absl::StatusOr<EngineAddress> address = ResolveEngine(options);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->base_url, "https://host:2376");
  EXPECT_EQ(address->key_pem, "x");
}

}  // namespace
}  // namespace elasticdl::docker
