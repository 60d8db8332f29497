// Measures how fast the master re-forms worlds of many workers. Starts a real
// master and attaches simulated workers over real streams: they answer like
// workers but compute nothing. Then one after another dies.
//
//   master_scale [--master=build/bin/elasticdl-master] [--rounds=10] [N...]
//
// Prints, for each N, the time from the death until the world of the others is
// level, and the master's CPU time and memory.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/rendezvous/stream_client.h"

namespace elasticdl {
namespace {

// Of the simulated cluster.
constexpr int kPerHost = 8;

// Counts the members that have the offers of the newest world. The world is
// level when all have them.
class Worlds {
 public:
  // Returns true for the last member.
  bool Connected(int64_t generation, int size) {
    MutexLock lock(mu_);
    if (generation > generation_) {
      generation_ = generation;
      size_ = size;
      connected_ = 0;
    }
    if (generation < generation_ || ++connected_ < size) return false;
    at_ = absl::Now();
    changed_.NotifyAll();
    return true;
  }
  // True for the first member that asks: one reports for all.
  bool ClaimLevel(int64_t generation) {
    MutexLock lock(mu_);
    if (generation <= claimed_) return false;
    claimed_ = generation;
    return true;
  }
  // Waits until a world of `size`, newer than `after`, is level. Returns when
  // that was.
  absl::Time WaitFor(int size, int64_t after) {
    MutexLock lock(mu_);
    while (size_ != size || connected_ != size || generation_ <= after) {
      if (!changed_.WaitFor(mu_, absl::Minutes(2))) {
        fprintf(stderr, "timed out waiting for a world of %d workers\n", size);
        exit(1);
      }
    }
    return at_;
  }
  int64_t generation() {
    MutexLock lock(mu_);
    return generation_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  int size_ ABSL_GUARDED_BY(mu_) = 0;
  int connected_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t claimed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time at_ ABSL_GUARDED_BY(mu_);
};

// Answers like a worker. The last member to get the offers reports Level.
class SimulatedWorker {
 public:
  SimulatedWorker(const std::string& address, const std::string& token,
                  int64_t id, Worlds& worlds)
      : id_(id), worlds_(worlds) {
    rendezvous::StreamClient::Options options;
    options.address = address;
    options.token = token;
    auto stream = rendezvous::StreamClient::Connect(options);
    if (!stream.ok()) {
      fprintf(stderr, "%s\n", stream.status().ToString().c_str());
      exit(1);
    }
    stream_ = *std::move(stream);
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id(id);
    stream_->Send(std::move(hello));
    thread_ = Thread("worker", [this] { Run(); });
  }
  ~SimulatedWorker() {
    stream_->Close(absl::ZeroDuration());
    thread_.Join();
  }

 private:
  void Run() {
    while (auto message = stream_->Receive(absl::InfiniteDuration())) {
      Answer(*message);
    }
  }
  void Answer(const v1::MasterMessage& message) {
    v1::WorkerMessage answer;
    if (message.has_welcome()) {
      answer.mutable_ready()->set_host(absl::StrCat("host-", id_ / kPerHost));
    } else if (message.has_prepare()) {
      // Only their number: all workers are on this machine, and each of them
      // would make a list of all.
      const v1::MemberList& list = message.prepare().list();
      if (list.base() == 0) size_ = 0;
      size_ += list.ids_size() - list.dropped_size();
      answer.mutable_offer()->set_generation(message.prepare().generation());
      // About as long as a real offer: an address and a key.
      answer.mutable_offer()->set_offer(std::string(64, 'x'));
    } else if (message.has_offers()) {
      Connect(message.offers().generation());
      return;
    } else if (message.has_switch_()) {
      if (worlds_.ClaimLevel(message.switch_().generation())) {
        SayLevel(message.switch_().generation());
      }
      return;
    } else {
      return;
    }
    stream_->Send(std::move(answer));
  }
  void Connect(int64_t generation) {
    v1::WorkerMessage connected;
    connected.mutable_connected()->set_generation(generation);
    stream_->Send(std::move(connected));
    if (worlds_.Connected(generation, size_)) SayLevel(generation);
  }
  void SayLevel(int64_t generation) {
    v1::WorkerMessage level;
    level.mutable_level()->set_generation(generation);
    stream_->Send(std::move(level));
  }

  const int64_t id_;
  Worlds& worlds_;
  std::unique_ptr<rendezvous::StreamClient> stream_;
  int size_ = 0;
  Thread thread_;
};

struct Master {
  pid_t pid = 0;
  std::string dir;
  std::string address;
  std::string token;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Master StartMaster(const std::string& program, int workers) {
  Master master;
  char dir[] = "/tmp/master-scale-XXXXXX";
  master.dir = mkdtemp(dir);
  const std::vector<std::string> arguments = {
      program,
      "--job_name=scale",
      absl::StrCat("--state_dir=", master.dir),
      "--pod_backend=none",
      "--port=0",
      absl::StrCat("--num_workers=", workers),
      "--model_def=none.custom_model",
      "--training_data=synthetic:records=1000000000",
      "--progress=none",
      "--log_level=WARNING"};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  fflush(stdout);
  master.pid = fork();
  if (master.pid == 0) {
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(127);
    execv(program.c_str(), argv.data());
    perror(program.c_str());
    _exit(127);
  }
  const std::string job = absl::StrCat(master.dir, "/jobs/scale/");
  while (master.address.empty()) {
    absl::SleepFor(absl::Milliseconds(20));
    master.address = ReadAll(job + "address");
    if (waitpid(master.pid, nullptr, WNOHANG) == master.pid) exit(1);
  }
  master.address = std::string(absl::StripAsciiWhitespace(master.address));
  master.token =
      std::string(absl::StripAsciiWhitespace(ReadAll(job + "token")));
  return master;
}

// CPU time in seconds and memory in megabytes of a process.
double CpuSeconds(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string word;
  double ticks = 0;
  for (int i = 1; i <= 15 && in >> word; ++i) {
    if (i >= 14) ticks += atof(word.c_str());
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}
double Megabytes(pid_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

void Measure(const std::string& program, int workers, int rounds) {
  const Master master = StartMaster(program, workers);
  Worlds worlds;
  std::vector<std::unique_ptr<SimulatedWorker>> all;
  const absl::Time start = absl::Now();
  for (int id = 0; id < workers; ++id) {
    all.push_back(std::make_unique<SimulatedWorker>(master.address,
                                                    master.token, id, worlds));
  }
  worlds.WaitFor(workers, 0);
  const double joined = absl::ToDoubleSeconds(absl::Now() - start);
  std::vector<double> times;
  const double cpu = CpuSeconds(master.pid);
  for (int round = 0; round < rounds; ++round) {
    const int64_t generation = worlds.generation();
    const absl::Time death = absl::Now();
    // Sometimes kill rank 0.
    all.erase(round % 3 == 0 ? all.begin() : all.begin() + all.size() / 2);
    times.push_back(absl::ToDoubleMilliseconds(
        worlds.WaitFor(static_cast<int>(all.size()), generation) - death));
  }
  std::sort(times.begin(), times.end());
  printf("%7d %12.1f %12.1f %12.1f %14.1f %10.0f\n", workers, joined * 1000,
         times[times.size() / 2], times.back(),
         (CpuSeconds(master.pid) - cpu) * 1000 / rounds, Megabytes(master.pid));
  fflush(stdout);
  kill(master.pid, SIGKILL);
  waitpid(master.pid, nullptr, 0);
  all.clear();
  if (system(absl::StrCat("rm -rf ", master.dir).c_str()) != 0) {
    fprintf(stderr, "cannot remove %s\n", master.dir.c_str());
  }
}

}  // namespace
}  // namespace elasticdl

int main(int argc, char** argv) {
  std::string program = "build/bin/elasticdl-master";
  int rounds = 10;
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--master=", 0) == 0) {
      program = argument.substr(9);
    } else if (argument.rfind("--rounds=", 0) == 0) {
      rounds = atoi(argument.c_str() + 9);
    } else if (atoi(argv[i]) > 2) {
      sizes.push_back(atoi(argv[i]));
    } else {
      fprintf(stderr, "master_scale [--master=PROGRAM] [--rounds=N] [N...]\n");
      return 2;
    }
  }
  if (sizes.empty()) sizes = {10, 100, 1000};
  printf(
      "workers   all in, ms  re-form p50      max, ms   CPU/death, ms   RSS, "
      "MB\n");
  for (const int size : sizes) {
    elasticdl::Measure(program, size, std::min(rounds, size - 1));
  }
  return 0;
}
