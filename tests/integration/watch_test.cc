// How a job is watched: timeline, metrics, probes, logs for programs, the live
// screen; and that none of it holds the job's secret.
#include <httplib.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "gmock/gmock.h"
#include "integration/job.h"

namespace elasticdl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

bool Installed(const std::string& program) {
  for (absl::string_view dir : absl::StrSplit(getenv("PATH"), ':')) {
    if (access(JoinPath(dir, program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

class WatchTest : public JobTest {
 protected:
  std::string JobPath(const std::string& name) {
    return Path("state/elasticdl/jobs/watched/" + name);
  }
  // Without the newline at its end.
  std::string JobFile(const std::string& name) {
    return std::string(absl::StripAsciiWhitespace(Contents(JobPath(name))));
  }
  std::unique_ptr<Job> Watched(Flags flags) {
    flags.insert(flags.begin(), {"--distribution_strategy=AllreduceStrategy"});
    return Train("watched", flags);
  }
  // Two workers have trained for a while: it has reported where its time went.
  void WaitForStepTime(Job& job) {
    // Two train at this step, so both have trained the next one.
    const auto two = [](const Json& event) {
      return event.contains("step_time") && event.value("workers", 0) == 2;
    };
    const Json first = job.WaitForEvent("progress", two);
    job.WaitForEvent("progress", [&](const Json& event) {
      return two(event) && event.at("step") > first.at("step");
    });
  }
  // Status 0: no answer.
  httplib::Response Get(const std::string& path, bool with_token = true) {
    httplib::Client client("http://" + JobFile("http_address"));
    httplib::Headers headers;
    if (with_token) {
      headers.emplace("Authorization", "Bearer " + JobFile("token"));
    }
    const auto answer = client.Get(path.c_str(), headers);
    if (answer) return *answer;
    httplib::Response none;
    none.status = 0;
    return none;
  }
  void Stop(Job& job) {
    const auto stop = Run("stop", {Program("elasticdl"), "stop"});
    EXPECT_EQ(stop->Wait(), 0) << stop->err();
    job.Wait();
  }
};

TEST_F(WatchTest, TheTimelineHasEveryWorkerAndASummary) {
  const std::string file = Path("timeline.json");
  const auto job =
      Watched({"--num_workers=2", "--num_epochs=0", "--timeline=" + file,
               "--checkpoint_dir=" + Path("ckpt"), "--checkpoint_steps=50"});
  WaitForStepTime(*job);
  Stop(*job);
  const Json events = Json::parse(Contents(file));
  ASSERT_TRUE(events.is_array());
  // By worker: the names of its spans, and how often.
  std::map<int64_t, std::map<std::string, int>> spans;
  std::set<std::string> marks;
  for (const Json& event : events) {
    if (event.at("ph") == "X") {
      ++spans[event.at("pid").get<int64_t>() - 2][event.at("name")];
      EXPECT_GE(event.at("dur").get<double>(), 0);
    } else if (event.at("ph") == "i") {
      marks.insert(std::string(event.at("name")));
    }
  }
  ASSERT_EQ(spans.size(), 2u);
  for (const auto& [worker, names] : spans) {
    for (const char* name :
         {"forward", "backward", "communication", "all-reduce", "optimizer",
          "feed", "enter world"}) {
      EXPECT_EQ(names.count(name), 1u) << "worker " << worker << " " << name;
    }
    EXPECT_EQ(names.at("forward"), names.at("backward"));
  }
  const int copies = spans[0]["checkpoint copy"] + spans[1]["checkpoint copy"];
  EXPECT_GT(copies, 0);
  EXPECT_THAT(marks, ::testing::Contains(::testing::StartsWith("world ")));
  const auto summary =
      Run("summary", {Program("elasticdl"), "timeline", "summary", file});
  ASSERT_EQ(summary->Wait(), 0) << summary->err();
  EXPECT_THAT(summary->out(),
              AllOf(HasSubstr("worker 0: "), HasSubstr("worker 1: "),
                    HasSubstr("ms/step"), HasSubstr("waited longest for"),
                    Not(HasSubstr("not complete"))));
}

TEST_F(WatchTest, TheApiTellsWhereTheTimeGoes) {
  const auto job = Watched({"--num_workers=2", "--num_epochs=0"});
  WaitForStepTime(*job);
  const auto answer = Get("/api/v1/status");
  ASSERT_EQ(answer.status, 200);
  const Json status = Json::parse(answer.body);
  const Json& time = status.at("step_time");
  double sum = 0;
  for (const auto& [name, value] : time.items()) {
    if (name != "step_ms") sum += value.get<double>();
  }
  EXPECT_NEAR(sum, time.at("step_ms").get<double>(), 1e-6);
  EXPECT_GT(time.at("forward_ms").get<double>(), 0);
  for (const Json& pod : status.at("pods")) {
    EXPECT_GT(pod.at("usage").at("memory_bytes").get<int64_t>(), 10 << 20);
    EXPECT_GT(pod.at("usage").at("records_per_s").get<double>(), 0);
  }
  const auto top = Run("top", {Program("elasticdl"), "top", "--json"});
  ASSERT_EQ(top->Wait(), 0) << top->err();
  EXPECT_TRUE(Json::parse(top->out()).contains("step_time"));
  EXPECT_EQ(Get("/healthz", /*with_token=*/false).status, 200);
  EXPECT_EQ(Get("/readyz", /*with_token=*/false).status, 200);
  EXPECT_EQ(Get("/metrics", /*with_token=*/false).status, 401);
  Stop(*job);
}

TEST_F(WatchTest, ServersTellWhatTheyHave) {
  const auto job = Train(
      "watched", {"--distribution_strategy=ParameterServerStrategy",
                  "--num_workers=1", "--num_ps_pods=2", "--num_epochs=0"});
  Json status;
  job->WaitForEvent("progress", [&](const Json&) {
    const auto answer = Get("/api/v1/status");
    if (answer.status != 200) return false;
    status = Json::parse(answer.body);
    int told = 0;
    for (const Json& pod : status.at("pods")) {
      const Json& usage = pod.at("usage");
      told += pod.at("type") == "ps" && usage.is_object() &&
              usage.at("pulls_per_s").get<double>() > 0;
    }
    return told == 2;
  });
  ASSERT_TRUE(status.is_object());
  for (const Json& pod : status.at("pods")) {
    if (pod.at("type") != "ps") continue;
    EXPECT_GT(pod.at("usage").at("pushes_per_s").get<double>(), 0);
    EXPECT_GT(pod.at("usage").at("memory_bytes").get<int64_t>(), 1 << 20);
  }
  EXPECT_THAT(Get("/metrics").body, HasSubstr("elasticdl_server_pulls_total{"));
  Stop(*job);
}

TEST_F(WatchTest, TheEventLogTellsWhoEvaluatesAndWhoSaves) {
  const auto job =
      Watched({"--num_workers=2", "--num_epochs=0", "--evaluation_steps=100",
               "--validation_data=" + test_csv(),
               "--checkpoint_dir=" + Path("ckpt"), "--checkpoint_steps=150"});
  const auto some = [](const Json& event) {
    return !event.at("workers").empty();
  };
  const auto none = [](const Json& event) {
    return event.at("workers").empty();
  };
  const Json evaluating = job->WaitForEvent("evaluating", some);
  EXPECT_EQ(evaluating.at("step").get<int64_t>() % 100, 0);
  const Json evaluated = job->WaitForEvent("evaluating", none);
  EXPECT_EQ(evaluated.at("step"), evaluating.at("step"));
  const Json saving = job->WaitForEvent("saving", some);
  EXPECT_EQ(saving.at("workers").size(), 1u) << saving;
  job->WaitForEvent("saving", none);
  // In the lanes of the page.
  std::set<std::string> states;
  const Json update = Json::parse(Get("/api/v1/update").body);
  for (const Json& span : update.at("spans")) {
    states.insert(std::string(span.at("state")));
  }
  EXPECT_THAT(states,
              testing::IsSupersetOf({"training", "evaluating", "saving"}));
  Stop(*job);
}

// A stopped process, until it goes on. The others wait for it, but answer.
TEST_F(WatchTest, AStoppedWorkerIsSilent) {
  const auto job =
      Watched({"--num_workers=2", "--num_epochs=0", "--worker_timeout=60"});
  const pid_t pid = job->WaitForWorker(1);
  WaitForStepTime(*job);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const Json silent = job->WaitForEvent("silent");
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  EXPECT_EQ(silent.at("type"), "worker");
  EXPECT_EQ(silent.at("id"), 1);
  EXPECT_THAT(std::string(silent.at("reason")),
              HasSubstr("has not answered for "));
  const Json heard = job->WaitForEvent("heard");
  EXPECT_EQ(heard.at("id"), 1);
  job->WaitForEvent("progress");
  EXPECT_EQ(job->Events("silent").size(), 1u);
  Stop(*job);
}

TEST_F(WatchTest, AStoppedServerIsSilent) {
  const auto job =
      Train("watched", {"--distribution_strategy=ParameterServerStrategy",
                        "--num_workers=1", "--num_ps_pods=2", "--num_epochs=0",
                        "--worker_timeout=60"});
  pid_t pid = 0;
  job->WaitForEvent("pod_started", [&](const Json& event) {
    pid = event.at("pid");
    return event.at("type") == "ps" && event.at("id") == 1;
  });
  job->WaitForEvent("progress",
                    [](const Json& event) { return event.at("step") > 5; });
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  const Json silent = job->WaitForEvent("silent");
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  EXPECT_EQ(silent.at("type"), "ps");
  EXPECT_EQ(silent.at("id"), 1);
  job->WaitForEvent("heard");
  Stop(*job);
}

TEST_F(WatchTest, PromtoolAcceptsTheMetrics) {
  if (!Installed("promtool")) GTEST_SKIP() << "no promtool on this machine";
  const auto job = Watched({"--num_workers=2", "--num_epochs=0"});
  WaitForStepTime(*job);
  const std::string metrics = Get("/metrics").body;
  ASSERT_THAT(metrics, HasSubstr("elasticdl_step_duration_seconds_bucket{"));
  ASSERT_TRUE(WriteFileAtomic(Path("metrics.txt"), metrics).ok());
  const auto check =
      Run("promtool",
          {"/bin/sh", "-c", "promtool check metrics < " + Path("metrics.txt")});
  EXPECT_EQ(check->Wait(), 0) << check->out() << check->err();
  EXPECT_EQ(check->err(), "");
  Stop(*job);
}

TEST_F(WatchTest, PrometheusScrapesTheJob) {
  if (!Installed("prometheus")) GTEST_SKIP() << "no prometheus here";
  const auto job = Watched({"--num_workers=2", "--num_epochs=0"});
  WaitForStepTime(*job);
  ASSERT_TRUE(WriteFileAtomic(Path("prometheus.yml"),
                              absl::StrCat("scrape_configs:\n"
                                           "- job_name: elasticdl\n"
                                           "  scrape_interval: 1s\n"
                                           "  authorization: {credentials: '",
                                           JobFile("token"), "'}\n",
                                           "  static_configs: [{targets: ['",
                                           JobFile("http_address"), "']}]\n"))
                  .ok());
  const auto prometheus = Run(
      "prometheus", {"prometheus", "--config.file=" + Path("prometheus.yml"),
                     "--storage.tsdb.path=" + Path("tsdb"),
                     "--web.listen-address=127.0.0.1:0"});
  std::string address;
  Json result = Json::array();
  const absl::Time deadline = Clock::Real().Now() + kPatience;
  while (result.empty() && Clock::Real().Now() < deadline) {
    // It tells nobody when it has scraped: the wait is for its end, which does
    // not come.
    ASSERT_FALSE(prometheus->Wait(absl::Milliseconds(300)).has_value())
        << prometheus->err();
    const std::string said = prometheus->err();
    const std::string mark = "msg=\"Listening on\" address=";
    const size_t at = said.find(mark);
    if (at == std::string::npos) continue;
    address = said.substr(at + mark.size());
    address = address.substr(0, address.find_first_of(" \n"));
    httplib::Client client("http://" + address);
    const auto answer =
        client.Get("/api/v1/query?query=elasticdl_step_duration_seconds_count");
    if (!answer || answer->status != 200) continue;
    result = Json::parse(answer->body).at("data").at("result");
  }
  ASSERT_FALSE(result.empty()) << prometheus->err();
  EXPECT_EQ(result[0].at("metric").at("job"), "elasticdl");
  EXPECT_EQ(result[0].at("metric").at("job_name"), "watched");
  EXPECT_GT(std::stod(std::string(result[0].at("value")[1])), 0);
  prometheus->Signal(SIGTERM);
  prometheus->Wait();
  Stop(*job);
}

TEST_F(WatchTest, LogsForProgramsAreJson) {
  const auto job = Watched({"--num_workers=1", "--num_epochs=2",
                            "--log_format=json", "--log_loss_steps=5"});
  ASSERT_EQ(job->Wait(), 0) << job->Output();
  bool has_step = false;
  for (const std::string& pod : {std::string("master"), std::string("0")}) {
    for (const absl::string_view line :
         absl::StrSplit(job->Log(pod), '\n', absl::SkipEmpty())) {
      const Json json = Json::parse(line, nullptr, false);
      ASSERT_TRUE(json.is_object()) << line;
      for (const char* field : {"time", "level", "pod", "message"}) {
        EXPECT_TRUE(json.contains(field)) << line;
      }
      has_step |=
          json.value("step", 0) > 0 && json.value("job", "") == "watched";
    }
  }
  EXPECT_TRUE(has_step);
}

TEST_F(WatchTest, TheTokenIsNowhere) {
  const auto job =
      Watched({"--num_workers=2", "--num_epochs=0", "--log_level=DEBUG",
               "--log_format=json", "--timeline=" + Path("timeline.json"),
               "--tensorboard_log_dir=" + Path("tb"),
               "--log_file_path=" + Path("all.log")});
  WaitForStepTime(*job);
  const std::string token = JobFile("token");
  ASSERT_GE(token.size(), 16u);
  for (const char* path :
       {"/", "/page.js", "/api/v1/status", "/api/v1/update", "/api/v1/model",
        "/api/v1/log?pod=master", "/metrics"}) {
    const auto answer = Get(path);
    ASSERT_EQ(answer.status, 200) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr(token))) << path;
  }
  const auto report = Run("report", {Program("elasticdl"), "report",
                                     "--output=" + Path("report.html")});
  ASSERT_EQ(report->Wait(), 0) << report->err();
  const Json pods = Json::parse(Get("/api/v1/status").body).at("pods");
  const pid_t victim = pods.at(0).at("pid").get<pid_t>();
  ASSERT_GT(victim, 1);
  kill(victim, SIGKILL);
  job->WaitForEvent("worker_lost");
  Stop(*job);
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(dir())) {
    if (!entry.is_regular_file() || entry.path().filename() == "token") {
      continue;
    }
    ++files;
    EXPECT_THAT(Contents(entry.path().string()), Not(HasSubstr(token)))
        << entry.path();
  }
  EXPECT_GT(files, 8);
}

// `elasticdl top` on a terminal of 80 by 24.
class Screen {
 public:
  explicit Screen(const std::vector<std::string>& environment) {
    winsize size = {24, 80, 0, 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      for (const std::string& one : environment) {
        putenv(const_cast<char*>(one.c_str()));
      }
      const std::string program = Program("elasticdl");
      execl(program.c_str(), "elasticdl", "top", nullptr);
      _exit(127);
    }
  }
  ~Screen() {
    // Never a pid below 1: that would be everybody.
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(fd_);
  }
  void Type(const std::string& keys) {
    EXPECT_EQ(write(fd_, keys.data(), keys.size()),
              static_cast<ssize_t>(keys.size()));
  }
  void Resize(unsigned short rows, unsigned short columns) {
    winsize size = {rows, columns, 0, 0};
    ioctl(fd_, TIOCSWINSZ, &size);
  }
  // Reads until `text` was sent after what was found before.
  bool WaitFor(const std::string& text) {
    const absl::Time deadline = Clock::Real().Now() + kPatience;
    while (true) {
      const size_t at = said_.find(text);
      if (at != std::string::npos) {
        said_.erase(0, at + text.size());
        return true;
      }
      const absl::Duration left = deadline - Clock::Real().Now();
      pollfd fd = {fd_, POLLIN, 0};
      if (poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <=
          0) {
        return false;
      }
      char buffer[4096];
      const ssize_t n = read(fd_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      said_.append(buffer, static_cast<size_t>(n));
    }
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& said() const { return said_; }

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  std::string said_;
};

TEST_F(WatchTest, TheScreenShowsScalesAndKills) {
  const auto job = Watched({"--num_workers=1", "--num_epochs=0"});
  job->WaitForEvent("first_step");
  Screen screen({"XDG_STATE_HOME=" + Path("state"), "TERM=xterm",
                 "LC_ALL=C.UTF-8", "NO_COLOR=1"});
  EXPECT_TRUE(screen.WaitFor("watched  running")) << screen.said();
  EXPECT_TRUE(screen.WaitFor("q quit")) << screen.said();
  screen.Type("s2\r");
  EXPECT_TRUE(screen.WaitFor("scaling to 2 workers")) << screen.said();
  job->WaitForEvent("world", [](const Json& world) {
    return world.at("members").size() == 2;
  });
  EXPECT_TRUE(screen.WaitFor("workers 2/2")) << screen.said();
  screen.Resize(30, 100);
  EXPECT_TRUE(screen.WaitFor("\x1b[2J")) << "drawn anew";
  EXPECT_TRUE(screen.WaitFor("\x1b[30;1H")) << "as high as the terminal";
  screen.Type("k");
  EXPECT_TRUE(screen.WaitFor("? y/n")) << screen.said();
  screen.Type("y");
  EXPECT_TRUE(screen.WaitFor("killed worker 0")) << screen.said();
  EXPECT_EQ(job->WaitForEvent("worker_lost").at("worker_id"), 0);
  screen.Type("q");
  EXPECT_TRUE(screen.WaitFor("\x1b[?1049l")) << "the screen is put back";
  EXPECT_EQ(screen.Wait(), 0);
  Stop(*job);
}

}  // namespace
}  // namespace elasticdl::test
