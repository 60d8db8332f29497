// The real `elasticdl` program: exit codes, streams, start-up time.
#include "command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/check.h"
#include "elasticdl/common/file.h"
#include "support/temp_dir.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs `program` in the folder `cwd` and waits for it.
Outcome Spawn(const std::string& program, std::vector<std::string> args,
              const std::string& cwd) {
  const test::TempDir dir;
  const std::string out = dir.Path("out");
  const std::string err = dir.Path("err");
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_addchdir_np(&actions, cwd.c_str());
  pid_t pid = 0;
  ELASTICDL_CHECK(posix_spawnp(&pid, program.c_str(), &actions, nullptr,
                               argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  ELASTICDL_CHECK(waitpid(pid, &status, 0) == pid);
  Outcome outcome;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  outcome.out = ReadFile(out).value();
  outcome.err = ReadFile(err).value();
  return outcome;
}

Outcome Elasticdl(const std::vector<std::string>& args,
                  const std::string& cwd = "/") {
  return Spawn(ELASTICDL_PROGRAM, args, cwd);
}

TEST(ClientTest, HelpGoesToStdout) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"-h"}, {"help"}}) {
    const Outcome outcome = Elasticdl(args);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("Usage: elasticdl COMMAND"));
    EXPECT_THAT(outcome.err, IsEmpty());
    for (const Command& command : Commands()) {
      EXPECT_THAT(outcome.out, HasSubstr("\n  " + command.name + " "));
    }
  }
  EXPECT_EQ(Elasticdl({}).exit_code, 1);
}

TEST(ClientTest, EveryCommandHasHelp) {
  for (const Command& command : Commands()) {
    // Has commands of its own and a test of its own.
    if (command.name == "data") continue;
    const Outcome outcome = Elasticdl({command.name, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << command.name;
    EXPECT_THAT(outcome.out, HasSubstr("Usage: elasticdl " + command.name));
    EXPECT_EQ(Elasticdl({"help", command.name}).out, outcome.out);
  }
}

struct UsageCase {
  std::vector<std::string> args;
  const char* line;
};

TEST(ClientTest, UsageErrorsAreOneLineAndExitCodeTwo) {
  const UsageCase kCases[] = {
      {{"foo"}, "elasticdl: unknown command 'foo'; see elasticdl --help\n"},
      {{"trian"}, "elasticdl: unknown command 'trian', did you mean train?\n"},
      {{"train", "--num_wokers=3"},
       "elasticdl train: unknown flag --num_wokers, did you mean "
       "--num_workers?\n"},
      {{"train", "--num_workers=many"},
       "elasticdl train: --num_workers: 'many' is not an integer\n"},
      {{"train", "--worker_resource_request=cpu=1,memory=4096"},
       "elasticdl train: --worker_resource_request: memory=4096: expected an "
       "integer with a unit of E, P, T, G, M, K, Ei, Pi, Ti, Gi, Mi, Ki, such "
       "as 4096Mi\n"},
      {{"train", "--training_data=x"},
       "elasticdl train: missing required flag --model_def\n"},
      {{"evaluate"},
       "elasticdl evaluate: missing required flags --validation_data, "
       "--checkpoint_dir_for_init\n"},
      {{"predict", "--checkpoint_dir_for_init=c"},
       "elasticdl predict: missing required flag --prediction_data\n"},
      {{"predict", "--num_epochs=2"},
       "elasticdl predict: unknown flag --num_epochs\n"},
      {{"train", "stray"},
       "elasticdl train: unexpected argument 'stray'; flags begin with --\n"},
      {{"zoo", "int"},
       "elasticdl zoo: unknown command 'int', did you mean "
       "init?\n"},
      {{"zoo", "build", "."},
       "elasticdl zoo build: missing required flag --image\n"},
      {{"zoo", "build", "--image=a"},
       "elasticdl zoo build: missing argument PATH: folder to build from\n"},
      {{"zoo", "build", "--image=a", "/no/such"},
       "elasticdl zoo build: PATH: '/no/such' is not a folder\n"},
      {{"zoo", "push"},
       "elasticdl zoo push: missing argument IMAGE: the image to push\n"},
      {{"completion", "fish"},
       "elasticdl completion: SHELL: 'fish' is not supported; bash is\n"},
      {{"version", "--all"}, "elasticdl version: unknown flag --all\n"},
  };
  for (const UsageCase& one : kCases) {
    const Outcome outcome = Elasticdl(one.args);
    EXPECT_EQ(outcome.exit_code, 2) << one.line;
    EXPECT_EQ(outcome.err, one.line);
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST(ClientTest, ConfigFile) {
  const test::TempDir dir;
  ASSERT_TRUE(
      WriteFileAtomic(dir.Path("job.yaml"),
                      "model_def: a.b.c\ntraining_data: x\nnum_wokers: 2\n")
          .ok());
  const Outcome outcome = Elasticdl({"train", "--config=job.yaml"}, dir.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err,
            "elasticdl train: job.yaml:3: unknown flag num_wokers, did you "
            "mean --num_workers?\n");
}

TEST(ClientTest, Version) {
  const Outcome outcome = Elasticdl({"version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("elasticdl "));
  EXPECT_THAT(outcome.out, HasSubstr("gRPC"));
  EXPECT_THAT(outcome.out, HasSubstr("libtorch"));
  EXPECT_EQ(Elasticdl({"--version"}).out, outcome.out);
}

// How long it takes is benchmarks/client_start.sh's to tell; what made it slow
// once were libraries.
TEST(ClientTest, LinksNoHeavyLibrary) {
  const Outcome libraries =
      Spawn("bash", {"-c", "ldd " + std::string(ELASTICDL_PROGRAM)}, "/");
  ASSERT_EQ(libraries.exit_code, 0) << libraries.err;
  EXPECT_THAT(libraries.out, testing::HasSubstr("libc.so"));
  for (const char* heavy : {"torch", "grpc", "protobuf", "brotli", "curl"}) {
    EXPECT_THAT(libraries.out, testing::Not(testing::HasSubstr(heavy)));
  }
}

TEST(CompletionTest, BashCompletesCommandsFlagsAndChoices) {
  const test::TempDir dir;
  const Outcome script = Elasticdl({"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0);
  ASSERT_TRUE(WriteFileAtomic(dir.Path("completion"), script.out).ok());
  const auto complete = [&](const std::string& words, int at) {
    const Outcome outcome = Spawn(
        "bash",
        {"-c", "source ./completion; COMP_WORDS=(" + words + "); COMP_CWORD=" +
                   std::to_string(at) + "; _elasticdl; echo ${COMPREPLY[*]}"},
        dir.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(complete("elasticdl tr", 1), "train\n");
  EXPECT_EQ(complete("elasticdl train --num_w", 2), "--num_workers=\n");
  EXPECT_EQ(complete("elasticdl train --use_a", 2), "--use_async\n");
  EXPECT_EQ(complete("elasticdl train --log_level = D", 4), "DEBUG\n");
  EXPECT_EQ(complete("elasticdl train --log_level =", 3),
            "DEBUG INFO WARNING ERROR CRITICAL\n");
  EXPECT_EQ(complete("elasticdl train --collective g", 3), "gloo\n");
  EXPECT_EQ(complete("elasticdl train --output = comp", 4), "completion\n");
  EXPECT_EQ(complete("elasticdl zoo in", 2), "init\n");
  EXPECT_EQ(complete("elasticdl zoo init --base", 3), "--base_image=\n");
  EXPECT_EQ(complete("elasticdl evaluate --num_ep", 2), "\n");
  EXPECT_EQ(complete(std::string(ELASTICDL_PROGRAM) + " version --he", 2),
            "--help\n");
}

TEST(ZooTest, InitWritesADockerfile) {
  const test::TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.Path("zoo/mnist")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.Path("zoo/packages.txt"), "libgomp1\n").ok());
  for (const char* model : {"zoo/mnist/net.cc", "zoo/a.cc"}) {
    ASSERT_TRUE(WriteFileAtomic(dir.Path(model), "Net custom_model();").ok());
  }
  ASSERT_TRUE(WriteFileAtomic(dir.Path("zoo/helper.cc"), "int i;").ok());
  ASSERT_TRUE(MakeDirectories(dir.Path("specs")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir.Path("specs/spec.json"), "{}\n").ok());
  const std::vector<std::string> init = {"zoo", "init", "--model_zoo=zoo",
                                         "--base_image=elasticdl:ci",
                                         "--cluster_spec=specs/spec.json"};
  const Outcome outcome = Elasticdl(init, dir.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(ReadFile(dir.Path("Dockerfile")).value(),
            "FROM elasticdl:ci\n"
            "USER root\n"
            "COPY zoo/packages.txt /tmp/packages.txt\n"
            "RUN apt-get update && xargs -a /tmp/packages.txt apt-get "
            "install -y\n"
            "USER 1000\n"
            "COPY --chown=1000:0 zoo /model_zoo\n"
            "RUN elasticdl-compile-zoo /model_zoo \\\n"
            "    a.custom_model \\\n"
            "    mnist.net.custom_model\n"
            "COPY spec.json /cluster_spec/spec.json\n");
  EXPECT_EQ(ReadFile(dir.Path("spec.json")).value(), "{}\n");

  // The same again is fine, another one only by force.
  EXPECT_EQ(Elasticdl(init, dir.path()).exit_code, 0);
  const Outcome other = Elasticdl({"zoo", "init"}, dir.path());
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("--force overwrites it"));
  EXPECT_EQ(Elasticdl({"zoo", "init", "--force"}, dir.path()).exit_code, 0);
  EXPECT_THAT(ReadFile(dir.Path("Dockerfile")).value(),
              HasSubstr("FROM elasticdl:latest\n"
                        "COPY --chown=1000:0 . /model_zoo\n"));
}

TEST(ZooTest, InitRefusesWhatCannotBeBuilt) {
  const test::TempDir dir;
  const std::pair<const char*, const char*> kCases[] = {
      {"--model_zoo=nowhere", "--model_zoo: 'nowhere' is not a folder"},
      {"--model_zoo=..", "must lie below the current folder"},
      {"--model_zoo=/usr", "must lie below the current folder"},
      {"--local_pkg_dir=nowhere", "--local_pkg_dir: 'nowhere' is not a folder"},
      {"--cluster_spec=none.py", "none.py"},
      {"--base_image=a b", "--base_image: 'a b' is not the name of an image"},
  };
  for (const auto& [arg, says] : kCases) {
    const Outcome outcome = Elasticdl({"zoo", "init", arg}, dir.path());
    EXPECT_EQ(outcome.exit_code, 2) << arg;
    EXPECT_THAT(outcome.err, HasSubstr(says));
    EXPECT_FALSE(FileExists(dir.Path("Dockerfile")));
  }
}

TEST(CommandTest, AuditSaysWhetherEachRecordIsThereOnce) {
  const test::TempDir dir;
  const std::string file = dir.Path("ledger.jsonl");
  const std::string line =
      R"({"epoch":0,"shard":"s","begin":0,"end":64,"step":1})";
  ASSERT_TRUE(WriteFileAtomic(file, line + "\n").ok());
  Outcome outcome = Elasticdl({"audit", file});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "epoch 1: 64 records, each once\n"
            "64 records committed, none twice\n");
  outcome = Elasticdl({"audit", file, "--records=100"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("64 records, each once, 36 are missing"));
  outcome = Elasticdl({"audit", file, "--epochs=2"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("1 epochs instead of 2"));
  EXPECT_EQ(Elasticdl({"audit", file, "--epochs=1"}).exit_code, 0);
  outcome = Elasticdl({"audit", "/dev/null"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("the file is empty"));
  outcome = Elasticdl({"audit", file, file});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("64 records committed, 64 twice"));
  ASSERT_TRUE(WriteFileAtomic(file, "no audit\n").ok());
  outcome = Elasticdl({"audit", file});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ledger.jsonl: line 1: no JSON object"));
  EXPECT_EQ(Elasticdl({"audit", dir.Path("none")}).exit_code, 2);
}

// Two servers, each with half of the buckets.
class ServerAuditTest : public testing::Test {
 protected:
  ServerAuditTest() {
    for (int server = 0; server < 2; ++server) {
      std::string buckets;
      for (int i = 0; i < 512; ++i) {
        absl::StrAppend(&buckets, i == 0 ? "" : ",", server * 512 + i);
      }
      Add(server, absl::StrCat(R"({"server":)", server,
                               R"(,"run":"r","term":1,"begins":0})"));
      Add(server,
          absl::StrCat(R"({"server":)", server,
                       R"(,"map":1,"entry":0,"gets":[)", buckets, "]}"));
    }
    Write("ledger", Range(0, 64, R"("step":1)"));
  }
  static std::string Range(int begin, int end, const std::string& more) {
    return absl::StrCat(R"({"epoch":0,"shard":"s","begin":)", begin,
                        R"(,"end":)", end, ",", more, "}\n");
  }
  void Add(int server, const std::string& line) {
    absl::StrAppend(&audits_[server], line, "\n");
  }
  void Push(int server, int begin, int end) {
    ++entry_;
    absl::StrAppend(&audits_[server],
                    Range(begin, end,
                          absl::StrCat(R"("server":)", server, R"(,"version":)",
                                       entry_, R"(,"entry":)", entry_)));
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir_.Path(name), text).ok());
  }
  Outcome Audit(std::vector<std::string> flags = {"--ps_audit=applied"}) {
    for (const auto& [server, text] : audits_) {
      Write(absl::StrCat("applied.", server), text);
    }
    flags.insert(flags.begin(), {"audit", "ledger"});
    return Elasticdl(flags, dir_.path());
  }

  const test::TempDir dir_;
  std::map<int, std::string> audits_;
  int entry_ = 0;
};

TEST_F(ServerAuditTest, EachServerHasEachRecordOnce) {
  Push(0, 0, 32);
  Push(0, 32, 64);
  Push(1, 0, 64);
  const Outcome outcome = Audit();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out,
            "epoch 1: 64 records, each once\n"
            "64 records committed, none twice\n"
            "servers: 2 files, 2 parts of the model; each committed record is "
            "once in each bucket\n");
  // From another folder, and two jobs of which one has no servers.
  EXPECT_EQ(Audit({"--ps_audit=" + dir_.Path("applied")}).exit_code, 0);
  Write("other", Range(64, 80, R"("step":2)"));
  EXPECT_EQ(Audit({"other", "--ps_audit=applied,"}).exit_code, 0);
}

TEST_F(ServerAuditTest, ServersThatDiffer) {
  Push(0, 0, 64);
  Push(1, 0, 32);
  const Outcome outcome = Audit();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("servers: bucket 512 and 511 more: epoch 1, s, "
                        "positions 32 to 64: committed, but applied 0 times\n"
                        "servers: 2 files, 2 parts of the model; 1 findings"));
}

TEST_F(ServerAuditTest, AJobThatEndedEarly) {
  Push(0, 0, 72);
  Push(1, 0, 64);
  Outcome outcome = Audit();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("positions 64 to 72: applied, but not "
                                     "committed\n"));
  outcome = Audit({"--ps_audit=applied", "--partial"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              HasSubstr("; 8 records were applied and not committed\n"));
}

TEST_F(ServerAuditTest, FilesThatAreNone) {
  Outcome outcome = Audit({"--ps_audit=nothing"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("there is no nothing.0, nor one of"));
  outcome = Audit({"--ps_audit=applied,applied"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("2 values for 1 files"));
  Add(1, "no audit");
  outcome = Audit();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("applied.1: line 3: no JSON object"));
}

}  // namespace
}  // namespace elasticdl::cli
