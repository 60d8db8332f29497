// The client's side of a local job, with shell scripts as master and a small
// HTTP server as its status page.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/process.h"
#include "local/client.h"
#include "local/find_job.h"
#include "local/http.h"
#include "local/launch.h"
#include "local/local_or_cluster.h"
#include "local/run_local_job.h"
#include "support/temp_dir.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;

bool EndsSoon(int pidfd) {
  pollfd fd = {pidfd, POLLIN, 0};
  return poll(&fd, 1, 20000) == 1;
}

class LocalJobTest : public ::testing::Test {
 protected:
  LocalJobTest() {
    EXPECT_EQ(mkfifo(never_.c_str(), 0600), 0);
    EXPECT_EQ(mkfifo(ready_.c_str(), 0600), 0);
    flags_.job_name = "j";
    flags_.state_dir = root_.path();
  }

  // An executable script.
  std::string Script(const std::string& body) {
    const std::string path = root_.Path("master.sh");
    EXPECT_TRUE(
        WriteFileAtomic(path, absl::StrCat("#!/bin/sh\n", body), 0755).ok());
    return path;
  }
  int Run(const std::string& body) {
    return RunLocalJob("train", flags_, set_, Script(body));
  }
  // Runs the client in a process of its own and waits until the master says
  // that it is up; what the master wrote to the FIFO.
  std::string Fork(const std::string& body) {
    const std::string script = Script(body);
    client_ = fork();
    if (client_ == 0) _exit(RunLocalJob("train", flags_, set_, script));
    return *ReadFile(ready_);
  }
  int WaitClient() {
    int status = 0;
    waitpid(client_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Pids that the master has written, as descriptors.
  static std::vector<Fd> Watch(const std::string& pids) {
    std::vector<Fd> fds;
    for (absl::string_view word :
         absl::StrSplit(pids, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
      pid_t pid = 0;
      EXPECT_TRUE(absl::SimpleAtoi(word, &pid)) << pids;
      fds.push_back(process::OpenPidfd(pid));
      EXPECT_TRUE(fds.back().valid());
    }
    return fds;
  }

  test::TempDir root_;
  const std::string never_ = root_.Path("never");
  const std::string ready_ = root_.Path("ready");
  flags::JobFlags flags_;
  flags::FlagSet set_{"elasticdl train", ""};
  jobdir::JobDir dir_{root_.path(), "j"};
  pid_t client_ = 0;
};

TEST_F(LocalJobTest, ReturnsTheMastersExitCode) {
  EXPECT_EQ(Run("exit 0"), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Run("echo it broke >&2; exit 3"), 3);
  const std::string error = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(error, HasSubstr("it broke"));
  EXPECT_THAT(error, HasSubstr("exit code 3"));
  EXPECT_EQ(*ReadFile(dir_.LogFile("master")), "it broke\n");
  EXPECT_FALSE(dir_.IsRunning());
}

TEST_F(LocalJobTest, ShowsTheReasonThatTheMasterLogged) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Run(absl::StrCat(
                "echo '{\"event\":\"job_end\",\"state\":\"failed\",\"reason\":"
                "\"no worker is left\"}' > ",
                dir_.EventsFile(), "; exit 1")),
            1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("job j failed: no worker is left"));
}

TEST_F(LocalJobTest, PassesFlagsOnAndTellsWhereThingsAre) {
  int64_t batch = 64;
  set_.Add("minibatch_size", &batch, flags::FlagInfo());
  ASSERT_TRUE(set_.Parse({"--minibatch_size=32"}).ok());
  flags_.output = "/models/m";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Run("echo progress; for a; do printf %s \"$a\" >&2; done"), 0);
  const std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("progress\n"));
  EXPECT_THAT(output, HasSubstr("/models/m"));
  EXPECT_THAT(output, HasSubstr(dir_.LogsDir()));
  flags::JobFlags received;
  flags::FlagSet set("elasticdl-master", "");
  ASSERT_TRUE(CheckJobFlags(flags::JobCommand::kMaster,
                            {*ReadFile(dir_.LogFile("master"))}, &received,
                            &set)
                  .ok());
  EXPECT_EQ(received.minibatch_size, 32);
  EXPECT_EQ(received.job_name, "j");
  EXPECT_EQ(received.state_dir, root_.path());
  EXPECT_EQ(received.pod_backend, "local");
  // A port that stays the same when the master is started again.
  EXPECT_GT(received.port, 0);
  EXPECT_GT(received.http_port, 0);
  EXPECT_NE(received.port, received.http_port);
  EXPECT_EQ(received.master_timeout, 300);
}

TEST_F(LocalJobTest, MissingMasterIsAClearError) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunLocalJob("train", flags_, set_, root_.Path("none")), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no such program"));
}

TEST_F(LocalJobTest, SecondJobOfTheNameIsRefused) {
  const auto lock = jobdir::JobLock::Acquire(dir_);
  ASSERT_TRUE(lock.ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Run("exit 0"), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("a job named j is running"));
}

TEST_F(LocalJobTest, MasterGetsTheLock) {
  // The descriptor in the variable is the lock file.
  EXPECT_EQ(Run(absl::StrCat("[ /proc/self/fd/$ELASTICDL_LOCK_FD -ef ",
                             dir_.LockFile(), " ]")),
            0);
}

TEST_F(LocalJobTest, FirstInterruptAsksSecondKills) {
  const std::vector<Fd> pids = Watch(
      Fork(absl::StrCat("trap '' TERM; echo $$ > ", ready_, "; cat ", never_)));
  kill(client_, SIGINT);
  kill(client_, SIGTERM);
  EXPECT_EQ(WaitClient(), 128 + SIGKILL);
  EXPECT_TRUE(EndsSoon(pids[0].get()));
}

// The master says by which of them the job was ended.
TEST_F(LocalJobTest, SignalsReachTheMaster) {
  // A master begins with its signals blocked, which a shell cannot change.
  const std::string master = absl::StrCat(
      "exec perl -MPOSIX -e '$SIG{TERM} = sub { exit 7 }; "
      "$SIG{INT} = sub { exit 8 }; "
      "sigprocmask(SIG_SETMASK, POSIX::SigSet->new); "
      "open(F, \">\", \"",
      ready_,
      "\"); print F \"$$\\n\"; close F; POSIX::pause() while "
      "1'");
  const struct {
    int signal;
    int exit_code;
  } kCases[] = {{SIGINT, 8}, {SIGTERM, 7}};
  for (const auto& one : kCases) {
    Fork(master);
    kill(client_, one.signal);
    EXPECT_EQ(WaitClient(), one.exit_code);
  }
}

// The first master leaves a pod that it has written down, and one that it has
// not. The second one tells what it finds.
TEST_F(LocalJobTest, KilledMasterIsStartedAgain) {
  const std::string seen = root_.Path("seen");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(
      Run(absl::StrCat(
          "cd ", dir_.path(), "\n",
          "if [ -z \"$ELASTICDL_MASTER_RESTART\" ]; then\n"
          "setsid cat ",
          never_,
          " & echo $! > pids/elasticdl-worker-j-0\n"
          "setsid cat ",
          never_,
          " & echo $! > other; kill -9 $$; fi\n"
          "kill -0 $(cat pids/elasticdl-worker-j-0) && echo stays > ",
          seen, "\nkill -0 $(cat other) || echo killed >> ", seen,
          "\necho $ELASTICDL_MASTER_RESTART $(cat pids/client) >> ", seen)),
      0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the master was killed (signal 9) and is started"));
  EXPECT_EQ(*ReadFile(seen),
            absl::StrCat("stays\nkilled\n1 9 ", getpid(), "\n"));
  EXPECT_THAT(*ReadFile(dir_.LogFile("master")),
              HasSubstr("elasticdl: the master was killed (signal 9)"));
}

TEST_F(LocalJobTest, MasterThatCannotLiveIsGivenUp) {
  const auto lock = jobdir::JobLock::Acquire(dir_);
  ASSERT_TRUE(lock.ok());
  LaunchOptions options;
  options.program =
      Script(absl::StrCat("echo x >> ", root_.Path("tries"), "; kill -11 $$"));
  options.relaunch = true;
  options.relaunch_rule.most = 3;
  options.relaunch_rule.delay = absl::ZeroDuration();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(LaunchMaster(options, dir_, *lock), 128 + SIGSEGV);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("is not started again: too often"));
  EXPECT_EQ(*ReadFile(root_.Path("tries")), "x\nx\nx\nx\n");
}

TEST_F(LocalJobTest, MasterThatEndsByItselfIsNotStartedAgain) {
  const std::string tries = root_.Path("tries");
  EXPECT_EQ(Run(absl::StrCat("echo x >> ", tries, "; exit 9")), 9);
  EXPECT_EQ(*ReadFile(tries), "x\n");
}

// A socket that listens on the port of the loopback; empty if that is refused.
Fd ListenOn(int port, const std::vector<int>& options) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  for (const int option : options) {
    setsockopt(listener.get(), SOL_SOCKET, option, &yes, sizeof(yes));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool done = bind(listener.get(), reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0 &&
                    listen(listener.get(), 1) == 0;
  return done ? std::move(listener) : Fd();
}

// As another user; whether it could listen.
bool NobodyListensOn(int port) {
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    _exit(ListenOn(port, {SO_REUSEADDR, SO_REUSEPORT}).valid() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_NE(WEXITSTATUS(status), 2);
  return WEXITSTATUS(status) == 1;
}

// One master after the other can listen on it, nobody by chance, and no other
// user.
TEST(ReservePortTest, IsForWhoAsksForIt) {
  const auto reserved = ReservePort();
  ASSERT_TRUE(reserved.ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(ListenOn(reserved->port, {}).valid());
    EXPECT_FALSE(ListenOn(reserved->port, {SO_REUSEADDR}).valid());
    if (geteuid() == 0) {
      EXPECT_FALSE(NobodyListensOn(reserved->port));
    }
    const Fd master = ListenOn(reserved->port, {SO_REUSEADDR, SO_REUSEPORT});
    EXPECT_TRUE(master.valid());
    EXPECT_FALSE(ListenOn(reserved->port, {SO_REUSEADDR}).valid());
  }
}

TEST_F(LocalJobTest, KilledClientTakesTheMasterAlong) {
  const std::vector<Fd> pids =
      Watch(Fork(absl::StrCat("echo $$ > ", ready_, "; exec cat ", never_)));
  kill(client_, SIGKILL);
  EXPECT_EQ(WaitClient(), -SIGKILL);
  EXPECT_TRUE(EndsSoon(pids[0].get()));
}

TEST_F(LocalJobTest, NothingSurvivesTheMaster) {
  // A grandchild in a session of its own, which no signal of the group reaches.
  const std::string go = root_.Path("go");
  ASSERT_EQ(mkfifo(go.c_str(), 0600), 0);
  const std::vector<Fd> pids =
      Watch(Fork(absl::StrCat("setsid cat ", never_, " & echo $! > ", ready_,
                              "; cat ", go, "; exit 0")));
  Fd(open(go.c_str(), O_WRONLY)).Reset();
  EXPECT_EQ(WaitClient(), 0);
  // Dead when the client has returned, not a moment later.
  pollfd fd = {pids[0].get(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 1);
}

TEST_F(LocalJobTest, DetachReturnsWhenTheMasterListens) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  flags_.detach = true;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Run(absl::StrCat("echo 127.0.0.1:1 > ", dir_.path(), "/a; mv ",
                             dir_.path(), "/a ", dir_.path(),
                             "/http_address; exec cat ", never_)),
            0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("job j is running"));
  EXPECT_TRUE(dir_.IsRunning());
  const pid_t master = dir_.ReadPids()["master"];
  const Fd watch = WatchJobEnd(dir_);
  EXPECT_TRUE(watch.valid());
  kill(master, SIGKILL);
  EXPECT_TRUE(EndsSoon(watch.get()));
  // Also the mv, which has the job's lock and may not quite have ended.
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  EXPECT_FALSE(dir_.IsRunning());
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(LocalJobTest, DetachReportsAMasterThatFails) {
  flags_.detach = true;
  EXPECT_EQ(Run("exit 9"), 9);
}

TEST(ParseHttpReplyTest, TakesTheBodyByItsLength) {
  const auto reply = ParseHttpReply(
      "HTTP/1.1 409 Conflict\r\nA: b\r\ncontent-LENGTH: 3\r\n\r\nabcd");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->code, 409);
  EXPECT_EQ(reply->body, "abc");
  EXPECT_EQ(ParseHttpReply("HTTP/1.0 200 OK\r\n\r\nall")->body, "all");
}

TEST(ParseHttpReplyTest, RefusesWhatIsNotHttp) {
  for (const char* text :
       {"", "x", "HTTP/1.1 200 OK\r\n", "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 x\r\n\r\n", "SSH-2.0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabcd"}) {
    EXPECT_EQ(ParseHttpReply(text).status().code(), absl::StatusCode::kDataLoss)
        << text;
  }
}

// A running job with a status server that records requests.
class JobCommandsTest : public LocalJobTest {
 protected:
  JobCommandsTest() : lock_(*jobdir::JobLock::Acquire(dir_)) {
    const std::string token = *dir_.ReadToken();
    const auto answer = [this, token](const httplib::Request& request,
                                      httplib::Response& response) {
      EXPECT_EQ(request.get_header_value("Authorization"), "Bearer " + token);
      requests_.push_back(absl::StrCat(request.method, " ", request.target));
      response.status = code_;
      response.set_content(body_, "application/json");
    };
    server_.Get(".*", answer);
    server_.Post(".*", answer);
    const int port = server_.bind_to_any_port("127.0.0.1");
    EXPECT_TRUE(dir_.WriteHttpAddress(absl::StrCat("127.0.0.1:", port)).ok());
    // Called once the server accepts: only then does stop() have an effect.
    server_.new_task_queue = [this] {
      accepting_.set_value();
      return new httplib::ThreadPool(1);
    };
    thread_ = Thread("server", [this] { server_.listen_after_bind(); });
    accepting_.get_future().wait();
  }
  ~JobCommandsTest() override {
    server_.stop();
    thread_.Join();
  }
  std::vector<std::string> Args(std::vector<std::string> more = {}) const {
    more.push_back("--state_dir=" + root_.path());
    return more;
  }

  std::optional<jobdir::JobLock> lock_;
  httplib::Server server_;
  std::promise<void> accepting_;
  Thread thread_;
  int code_ = 200;
  std::string body_ = R"({"job":"j","state":"running","generation":2,"step":5,
    "epoch":1,"records_per_s":10.5,"loss":0.5,"workers":1,"target_workers":2,
    "pods":[{"name":"elasticdl-worker-j-0","id":0,"type":"worker","pid":42,
    "state":"Running","usage":{"memory_bytes":123400000,"records_per_s":900.5,
    "step_ms":7.2}}],"evaluations":[{"step":5,"metrics":{"auc":0.75}}]})";
  std::vector<std::string> requests_;
};

TEST_F(JobCommandsTest, TopPrintsTheJsonOfTheMaster) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunTop(Args({"--job_name=j", "--json"})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), body_ + "\n");
  EXPECT_THAT(requests_, ::testing::ElementsAre("GET /api/v1/status"));
}

TEST_F(JobCommandsTest, TopIsReadableAndFindsTheOnlyJob) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunTop(Args()), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("j: running, epoch 1, step 5, 10 records/s, "
                              "loss 0.5, workers 1/2, generation 2"));
  EXPECT_THAT(text, HasSubstr("elasticdl-worker-j-0"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "j-0 +worker +42 +123 +90[01] +7  Running\n"));
  EXPECT_THAT(text, HasSubstr("evaluation at step 5: auc=0.75\n"));
}

TEST_F(JobCommandsTest, TopSaysThatWorkersAreStarting) {
  body_ = R"({"job":"j","state":"running","generation":0,"step":0,"epoch":1,
    "workers":0,"target_workers":2,"pods":[{"name":"elasticdl-worker-j-0",
    "id":0,"type":"worker","pid":42,"state":"Running","usage":null}]})";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunTop(Args()), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("j: running, starting workers (they compile or "
                              "load the model), workers 0/2\n"));
  EXPECT_THAT(text, testing::ContainsRegex("42 +- +- +-  Running\n"));
}

TEST_F(JobCommandsTest, TopOfAJobWithServersHasNoGeneration) {
  body_ = R"({"job":"j","state":"running","generation":0,"workers":1,
    "target_workers":2,"evaluations":[{"step":5,
    "metrics":{"accuracy":0.123456789,"auc":null}}]})";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunTop(Args()), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, HasSubstr("workers 1/2\n"));
  EXPECT_THAT(text, HasSubstr("step 5: accuracy=0.123457 auc=nan\n"));
}

TEST_F(JobCommandsTest, TopTellsTheAddressOfTheStatusPage) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunTop(Args({"--url"})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            absl::StrCat("http://", *dir_.ReadHttpAddress(),
                         "/?token=", *dir_.ReadToken(), "\n"));
  EXPECT_THAT(requests_, ::testing::IsEmpty());
}

// xdg-open is given a file for its owner's eyes, not the token.
TEST_F(JobCommandsTest, OpenStartsABrowserAndPrintsTheAddress) {
  const std::string bin = JoinPath(root_.path(), "bin");
  const std::string seen = JoinPath(root_.path(), "seen");
  ASSERT_TRUE(MakeDirectories(bin).ok());
  ASSERT_TRUE(
      WriteFileAtomic(
          JoinPath(bin, "xdg-open"),
          absl::StrCat("#!/bin/sh\necho \"$@\" > ", seen, "\ncat \"$1\" >> ",
                       seen, "\nstat -c %a \"$1\" >> ", seen, "\n"),
          0755)
          .ok());
  const std::string path = flags::GetEnv("PATH");
  setenv("PATH", absl::StrCat(bin, ":", path).c_str(), 1);
  setenv("DISPLAY", ":77", 1);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunOpen(Args()), 0);
  const std::string url = absl::StrCat("http://", *dir_.ReadHttpAddress(),
                                       "/?token=", *dir_.ReadToken());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), url + "\n");
  const auto text = ReadFile(seen);
  ASSERT_TRUE(text.ok()) << text.status();
  const size_t end = text->find('\n');
  EXPECT_EQ(text->substr(0, end), JoinPath(root_.path(), "open-j.html"));
  EXPECT_THAT(text->substr(end), HasSubstr("content=\"0; url=" + url));
  EXPECT_THAT(text->substr(end), ::testing::EndsWith("\n600\n"));

  // One that fails, and none at all.
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(bin, "xdg-open"), "#!/bin/sh\nexit 3\n", 0755)
          .ok());
  for (const std::string& where : {absl::StrCat(bin, ":", path), bin + "/no"}) {
    setenv("PATH", where.c_str(), 1);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunOpen(Args()), 0);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), url + "\n");
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("did not start a browser"));
  }
  unsetenv("DISPLAY");
  setenv("PATH", path.c_str(), 1);
}

TEST_F(JobCommandsTest, ReportHoldsTheAnswerOfTheMaster) {
  const std::string file = JoinPath(root_.path(), "r.html");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunReport(Args({"--job_name=j", "--output=" + file})), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr(file));
  EXPECT_THAT(requests_, ::testing::ElementsAre("GET /api/v1/update"));
  const std::string text = *ReadFile(file);
  EXPECT_THAT(text, HasSubstr(body_));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(*dir_.ReadToken())));
}

TEST_F(LocalJobTest, ReportOfAnEndedJobComesFromItsEvents) {
  ASSERT_TRUE(jobdir::JobLock::Acquire(dir_).ok());
  ASSERT_TRUE(WriteFileAtomic(
                  dir_.EventsFile(),
                  R"({"time":1,"event":"job_start","job":"j","command":"train"}
{"time":9,"event":"job_end","state":"succeeded","reason":"finished"}
{"time":10,"eve)")
                  .ok());
  const std::string file = JoinPath(root_.path(), "r.html");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunReport({"--job_name=j", "--output=" + file,
                       "--state_dir=" + root_.path()}),
            0);
  ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(*ReadFile(file), HasSubstr(R"("state":"succeeded")"));
}

TEST_F(LocalJobTest, ReportReplacesNothingButFiles) {
  const std::string log = JoinPath(root_.path(), "log");
  ASSERT_TRUE(WriteFileAtomic(log, R"({"time":1,"event":"job_start"})"
                                   "\n")
                  .ok());
  ::testing::internal::CaptureStderr();
  EXPECT_NE(RunReport({"--event_log=" + log, "--output=" + root_.path()}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("is not a file"));
}

TEST_F(LocalJobTest, ReportNamesTheLineThatIsNoEvent) {
  const std::string log = JoinPath(root_.path(), "log");
  for (const auto& [text, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"x\ny\n", "log, line 1: "},
           {"x", "log, line 1: "},
           {"", "log has no events"}}) {
    ASSERT_TRUE(WriteFileAtomic(log, text).ok());
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunReport({"--event_log=" + log, "--output=/dev/null"}), 1);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(error));
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunReport({"--event_log=" + log + ".not"}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("log.not"));
}

TEST_F(LocalJobTest, ReportLeavesBadLinesOut) {
  const std::string log = JoinPath(root_.path(), "log");
  const std::string file = JoinPath(root_.path(), "r.html");
  ASSERT_TRUE(WriteFileAtomic(log,
                              "{\"time\":1,\"event\":\"scaled\"}\nx\n{\n"
                              "{\"time\":2,\"event\":\"last one\"}\n")
                  .ok());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunReport({"--event_log=" + log, "--output=" + file}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("log: 2 bad lines left out; the first is line 2: "));
  ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(*ReadFile(file), HasSubstr("last one"));
}

TEST_F(JobCommandsTest, AnswersThatAreNotJsonDoNotCrash) {
  for (const char* body : {"", "x", "[]", "{\"pods\":[1,null]}"}) {
    body_ = body;
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(RunTop(Args()), 0) << body;
    ::testing::internal::GetCapturedStdout();
  }
}

TEST_F(JobCommandsTest, ScaleAsksTheMaster) {
  EXPECT_EQ(RunScale(Args({"--num_workers=4"})), 0);
  EXPECT_THAT(requests_,
              ::testing::ElementsAre("POST /api/v1/scale?num_workers=4"));
  EXPECT_EQ(RunScale(Args({"--num_ps_pods=3"})), 0);
  EXPECT_EQ(requests_.back(), "POST /api/v1/scale?num_ps_pods=3");
  EXPECT_EQ(RunScale(Args({"--num_workers=4", "--num_ps_pods=3"})), 0);
  EXPECT_EQ(requests_.back(), "POST /api/v1/scale?num_workers=4&num_ps_pods=3");
  EXPECT_EQ(RunScale(Args()), 2);
  EXPECT_EQ(RunScale(Args({"--num_workers=0"})), 2);
  EXPECT_EQ(RunScale(Args({"--num_ps_pods=1025"})), 2);
  code_ = 409;
  body_ = R"({"error":"the job is ending"})";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunScale(Args({"--num_workers=4"})), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("job j: the job is ending"));
}

TEST_F(JobCommandsTest, StopAsksAndWaitsForTheEnd) {
  const pid_t master = fork();
  if (master == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE(dir_.WritePid("master", master).ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunStop(Args({"--timeout=0"})), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("has not ended"));
  kill(master, SIGKILL);
  ASSERT_TRUE(WriteFileAtomic(dir_.EventsFile(),
                              R"({"event":"job_end","reason":"enough; saved"})")
                  .ok());
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunStop(Args()), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "job j has been stopped: enough; saved\n");
  waitpid(master, nullptr, 0);
  EXPECT_THAT(requests_, ::testing::Each(std::string("POST /api/v1/stop")));
}

TEST_F(JobCommandsTest, JobsThatDoNotRunAreNamed) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunTop(Args({"--job_name=other"})), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no job named other (running: j; elasticdl list "
                        "shows all)"));
  lock_.reset();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunStop(Args({"--job_name=j"})), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("job j is not running"));
  lock_ = *jobdir::JobLock::Acquire(dir_);
  EXPECT_TRUE(dir_.WriteHttpAddress("127.0.0.1:1").ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunTop(Args()), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no answer from its master"));
}

TEST_F(JobCommandsTest, WithoutANameTheMessageSaysWhatToType) {
  std::optional<jobdir::JobLock> second =
      *jobdir::JobLock::Acquire(jobdir::JobDir(root_.path(), "mnist"));
  EXPECT_EQ(FindJob(root_.path(), "", "stop").status(),
            absl::FailedPreconditionError(
                "2 jobs are running on this machine: j, mnist; say which: "
                "elasticdl stop --job_name=j"));
  second.reset();
  EXPECT_EQ(FindJob(root_.path(), "", "stop")->job_name(), "j");
  EXPECT_EQ(
      FindJob(root_.path(), "mnits", "report").status(),
      absl::NotFoundError("no job named mnits; did you mean mnist? (running: "
                          "j; ended: mnist; elasticdl list shows all)"));
  lock_.reset();
  EXPECT_EQ(FindJob(root_.path(), "", "scale").status(),
            absl::NotFoundError("no job is running on this machine"));
  // Of these two the events of j are newer.
  ASSERT_TRUE(WriteFileAtomic(dir_.EventsFile(), "").ok());
  EXPECT_EQ(
      FindJob(root_.path(), "", "logs").status(),
      absl::NotFoundError("no job is running on this machine; of the one that "
                          "ended last: elasticdl logs --job_name=j (elasticdl "
                          "list shows all)"));
  EXPECT_EQ(FindJob(root_.Path("none"), "x", "report").status(),
            absl::NotFoundError(absl::StrCat(
                "no job named x: there are no jobs in ", root_.Path("none"))));
}

TEST(JobListTest, HasAHeaderOnATerminal) {
  const std::vector<JobSummary> jobs = {{"a", "succeeded", "", "dir", "/s/a"},
                                        {"b", "running", "", "dir", "/s/b"}};
  const std::string lines =
      "b                                        running    /s/b\n"
      "a                                        succeeded  /s/a\n";
  EXPECT_EQ(FormatJobs(jobs, /*header=*/false), lines);
  EXPECT_EQ(
      FormatJobs(jobs, /*header=*/true),
      "JOB                                      STATE      DIR\n" + lines);
  EXPECT_EQ(FormatJobs({}, /*header=*/true), "");
}

TEST_F(JobCommandsTest, ListShowsRunningAndEndedJobs) {
  {
    const jobdir::JobDir ended(root_.path(), "ended");
    ASSERT_TRUE(jobdir::JobLock::Acquire(ended).ok());
    ASSERT_TRUE(WriteFileAtomic(
                    ended.EventsFile(),
                    "{\"event\":\"job_end\",\"state\":\"succeeded\"}\n{torn")
                    .ok());
    ASSERT_TRUE(
        jobdir::JobLock::Acquire(jobdir::JobDir(root_.path(), "lost")).ok());
  }
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunList(Args()), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, ::testing::ContainsRegex("ended +succeeded"));
  EXPECT_THAT(text, ::testing::ContainsRegex("j +running"));
  EXPECT_THAT(text, ::testing::ContainsRegex("lost +killed"));
  EXPECT_LT(text.find("running"), text.find("succeeded"));
}

TEST_F(JobCommandsTest, LogsByPodNameOrItsEnd) {
  ASSERT_TRUE(WriteFileAtomic(dir_.LogFile("master"), "m\n").ok());
  ASSERT_TRUE(
      WriteFileAtomic(dir_.LogFile("elasticdl-worker-j-0"), "w0\n").ok());
  const auto logs = [&](std::vector<std::string> args) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(RunLogs(Args(std::move(args))), 0);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(logs({"master"}), "m\n");
  EXPECT_EQ(logs({"0"}), "w0\n");
  EXPECT_EQ(logs({"--follow", "0"}), "w0\n");
  EXPECT_EQ(logs({"elasticdl-worker-j-0"}), "w0\n");
  EXPECT_EQ(logs({}), "==> elasticdl-worker-j-0 <==\nw0\n==> master <==\nm\n");
  EXPECT_EQ(RunLogs(Args({"7"})), 1);
}

TEST_F(JobCommandsTest, LogsOfAServerByItsNumber) {
  for (const char* pod :
       {"elasticdl-worker-j-0", "elasticdl-ps-j-0", "elasticdl-ps-j-0-r1"}) {
    ASSERT_TRUE(WriteFileAtomic(dir_.LogFile(pod), "x\n").ok());
  }
  const auto logs = [&](const std::string& pod) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(RunLogs(Args({pod})), 0);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(logs("0"), "x\n");
  EXPECT_EQ(logs("ps-j-0"), "x\n");
  EXPECT_THAT(logs("ps-0"), AllOf(HasSubstr("==> elasticdl-ps-j-0 <=="),
                                  HasSubstr("==> elasticdl-ps-j-0-r1 <=="),
                                  Not(HasSubstr("worker"))));
  EXPECT_EQ(RunLogs(Args({"ps-1"})), 1);
}

TEST_F(JobCommandsTest, LogsFollowUntilTheMasterEnds) {
  const std::string log = dir_.LogFile("master");
  ASSERT_TRUE(WriteFileAtomic(log, "one\n").ok());
  const pid_t master = fork();
  if (master == 0) {
    // Ends when it has written what is to be followed.
    execl("/bin/sh", "sh", "-c",
          absl::StrCat("read x < ", ready_, "; echo two >> ", log).c_str(),
          nullptr);
  }
  ASSERT_TRUE(dir_.WritePid("master", master).ok());
  ::testing::internal::CaptureStdout();
  const Fd go(open(ready_.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(go.get(), "go\n", 3), 3);
  EXPECT_EQ(RunLogs(Args({"master", "--follow"})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "one\ntwo\n");
  waitpid(master, nullptr, 0);
}

}  // namespace
}  // namespace elasticdl::cli
