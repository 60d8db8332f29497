// Measures what a viewer of the page costs the master: a real master with
// simulated workers that train, with and without somebody who follows
// /api/v1/stream, in turns.
//
//   page_cost [--master=build/bin/elasticdl-master] [--workers=100]
//             [--rounds=5] [--seconds=10] [--limit=1.0]
//
// Prints the CPU time of the master in percent of one core. Exit code 1: the
// viewer costs more than --limit percent.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "simulated_fleet.h"
#include "started_master.h"

namespace elasticdl {
namespace {

// Steps per second of the job, and records of a worker in a step.
constexpr int kStepsPerSecond = 20;
constexpr int64_t kRecords = 32;

struct Options {
  std::string master = "build/bin/elasticdl-master";
  int workers = 100;
  int rounds = 5;
  double seconds = 10;
  double limit = 1.0;
};

// Exact to microseconds, in contrast to /proc.
double CpuTime(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    Die("the master has ended");
  }
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) / 1e9;
}

// Follows the stream as a page does. A thread of this process.
class Viewer {
 public:
  Viewer(int port, const std::string& token)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string request = absl::StrCat(
        "GET /api/v1/stream?since=0 HTTP/1.1\r\nHost: localhost\r\n"
        "Authorization: Bearer ",
        token, "\r\n\r\n");
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 ||
        write(fd_, request.data(), request.size()) !=
            static_cast<ssize_t>(request.size())) {
      Die(absl::StrCat("the page: ", std::strerror(errno)));
    }
    thread_ = std::thread([this] { Read(); });
  }
  ~Viewer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  int64_t bytes() const { return bytes_; }
  int64_t messages() const { return messages_; }

 private:
  void Read() {
    std::string last;
    char buffer[1 << 16];
    for (ssize_t n; (n = read(fd_, buffer, sizeof(buffer))) > 0;) {
      bytes_ += n;
      // The mark may be cut by the end of the buffer.
      last.append(buffer, static_cast<size_t>(n));
      constexpr absl::string_view kMark = "data: {";
      size_t at = 0;
      while ((at = last.find(kMark.data(), at, kMark.size())) !=
             std::string::npos) {
        ++messages_;
        at += kMark.size();
      }
      last.erase(0, last.size() - std::min(last.size(), kMark.size() - 1));
    }
  }

  const int fd_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int64_t> messages_ = 0;
  std::thread thread_;
};

// The workers train: a report of each step, and of each worker once a second.
class Training {
 public:
  explicit Training(Fleet& fleet) : fleet_(fleet) {}

  void Run(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end) {
      if (absl::Now() >= next_) Step();
      fleet_.Turn(std::min(end, next_) - absl::Now());
    }
  }

 private:
  void Step() {
    next_ = std::max(next_, absl::Now() - absl::Seconds(1)) +
            absl::Seconds(1) / kStepsPerSecond;
    const auto& workers = fleet_.workers();
    v1::WorkerMessage message;
    v1::Progress& progress = *message.mutable_progress();
    progress.set_generation(fleet_.generation());
    progress.set_step(++step_);
    progress.set_loss(1.0 / static_cast<double>(step_));
    progress.set_learning_rate(0.1);
    for (const auto& worker : workers) {
      v1::RecordTotal& total = *progress.add_totals();
      total.set_worker_id(worker->id());
      total.set_records(worker->Train(kRecords));
    }
    workers[0]->stream().Send(message);
    // Spread over the second, as they are.
    const auto turn = static_cast<size_t>(step_ % kStepsPerSecond);
    for (size_t i = turn; i < workers.size(); i += kStepsPerSecond) {
      SayUsage(*workers[i]);
    }
  }
  static void SayUsage(SimulatedWorker& worker) {
    v1::WorkerMessage message;
    v1::Telemetry& telemetry = *message.mutable_telemetry();
    telemetry.set_seconds(1);
    telemetry.set_cpu_seconds(0.9);
    telemetry.set_memory_bytes(250 << 20);
    telemetry.set_steps(kStepsPerSecond);
    telemetry.set_records(kStepsPerSecond * kRecords);
    for (int kind = 0; kind < 11; ++kind) telemetry.add_phase_seconds(0.09);
    worker.stream().Send(message);
  }

  Fleet& fleet_;
  int64_t step_ = 0;
  absl::Time next_ = absl::Now();
};

// A folder with the master and a program that is no worker but a process, so
// that the job has pods as a real one does.
std::string MakePrograms(const std::string& master) {
  char name[] = "/tmp/page-cost-XXXXXX";
  const std::string dir = mkdtemp(name);
  std::error_code error;
  std::filesystem::copy_file(master, dir + "/elasticdl-master", error);
  if (error) Die(absl::StrCat(master, ": ", error.message()));
  const std::string worker = dir + "/elasticdl-worker";
  std::ofstream(worker) << "#!/bin/sh\n"
                           "case \"$*\" in *--fork_server_fd=*) exit 1;; esac\n"
                           "exec sleep 86400\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  return dir;
}

int PortOfPage(const Master& master) {
  std::string address = ReadAll(master.dir + "/jobs/scale/http_address");
  absl::StripAsciiWhitespace(&address);
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
    Die("no port of the page in '" + address + "'");
  }
  return port;
}

// Percent of a core while the job trains for a while.
double Cost(const Master& master, Training& training, double seconds) {
  const double cpu = CpuTime(master.pid);
  const absl::Time begin = absl::Now();
  training.Run(absl::Seconds(seconds));
  return 100 * (CpuTime(master.pid) - cpu) /
         absl::ToDoubleSeconds(absl::Now() - begin);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

int Measure(const Options& options) {
  const std::string programs = MakePrograms(options.master);
  const Master master =
      StartMaster(programs + "/elasticdl-master", options.workers, "local");
  double difference = 0;
  {
    Fleet fleet(master.port, master.token);
    fleet.Start(options.workers);
    fleet.Form(0);
    Training training(fleet);
    // The first seconds are not like the others: grants, pods.
    training.Run(absl::Seconds(3));
    printf("round  without, %%  with, %%  difference  messages/s  kB/s\n");
    std::vector<double> differences;
    for (int round = 0; round < options.rounds; ++round) {
      double with = 0;
      double without = 0;
      double messages = 0;
      double bytes = 0;
      // The order changes from round to round.
      for (const bool watched : {round % 2 == 0, round % 2 != 0}) {
        if (!watched) {
          without = Cost(master, training, options.seconds);
          continue;
        }
        const Viewer viewer(PortOfPage(master), master.token);
        with = Cost(master, training, options.seconds);
        messages = static_cast<double>(viewer.messages());
        bytes = static_cast<double>(viewer.bytes());
      }
      if (messages < options.seconds / 2) Die("the page was not followed");
      differences.push_back(with - without);
      printf("%5d %11.2f %8.2f %11.2f %11.1f %5.0f\n", round + 1, without, with,
             with - without, messages / options.seconds,
             bytes / 1000 / options.seconds);
      fflush(stdout);
    }
    difference = Median(differences);
  }
  EndMaster(master);
  std::error_code ignored;
  std::filesystem::remove_all(programs, ignored);
  const bool cheap = difference <= options.limit;
  printf(
      "a viewer of %d workers costs %.2f %% of a core (median; %s %.1f %%)\n",
      options.workers, difference, cheap ? "at most" : "MORE THAN",
      options.limit);
  return cheap ? 0 : 1;
}

}  // namespace
}  // namespace elasticdl

int main(int argc, char** argv) {
  elasticdl::Options options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    const bool good =
        (absl::ConsumePrefix(&text, "--master=") &&
         !(options.master = std::string(text)).empty()) ||
        (absl::ConsumePrefix(&text, "--workers=") &&
         absl::SimpleAtoi(text, &options.workers) && options.workers > 1) ||
        (absl::ConsumePrefix(&text, "--rounds=") &&
         absl::SimpleAtoi(text, &options.rounds) && options.rounds > 0) ||
        (absl::ConsumePrefix(&text, "--seconds=") &&
         absl::SimpleAtod(text, &options.seconds) && options.seconds > 0) ||
        (absl::ConsumePrefix(&text, "--limit=") &&
         absl::SimpleAtod(text, &options.limit));
    if (!good) {
      fprintf(stderr,
              "page_cost [--master=PROGRAM] [--workers=N] [--rounds=N] "
              "[--seconds=S] [--limit=PERCENT]\n");
      return 2;
    }
  }
  return elasticdl::Measure(options);
}
