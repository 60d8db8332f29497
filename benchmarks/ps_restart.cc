// How soon a part of the model answers again, without the time to notice that
// its server is gone and to start a process: a server that reads its log, one
// that reads a snapshot, and a backup that takes over. Each is the time to the
// next push that is acknowledged; beside it, the CPU time of reading, which
// other programs on the machine do not change much.
//
//   ps_restart [rows] [dim] [rounds]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"

namespace {

namespace net = elasticdl::net;
namespace ps = elasticdl::ps;
namespace v1 = elasticdl::v1;

constexpr char kToken[] = "a token for this benchmark";
constexpr int64_t kRowsPerPush = 4096;

void Ok(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench(std::string dir, int64_t rows, int64_t dim)
      : dir_(std::move(dir)), rows_(rows), dim_(dim) {
    ps::Client::Options options;
    options.secret = kToken;
    options.find = [this](int, absl::Duration) -> absl::StatusOr<net::Address> {
      return net::Address{"127.0.0.1", port_};
    };
    client_ = std::make_unique<ps::Client>(options, ps::BucketMap::Even(1));
  }

  std::unique_ptr<ps::Server> Start(const std::string& name, bool replicated,
                                    int64_t snapshot_bytes) {
    ps::ServerOptions options;
    options.address = {"127.0.0.1", 0};
    options.secret = kToken;
    options.log_dir = dir_ + "/" + name;
    options.snapshot_bytes = snapshot_bytes;
    options.replicated = replicated;
    options.tell = [this](const v1::PsPartState& state) { told_.Push(state); };
    auto server = ps::Server::Start(std::move(options));
    Ok(server.status());
    return *std::move(server);
  }
  static void Assign(ps::Server& server, int64_t term, bool primary,
                     const std::string& backup) {
    v1::PsAssignment assignment;
    assignment.set_term(term);
    assignment.set_primary(primary);
    assignment.set_backup_address(backup);
    server.Assign(assignment);
  }
  void Hear(v1::PsPartState::StateCase what) {
    while (told_.Pop(absl::Minutes(5))->state_case() != what) {
    }
  }
  void Use(const ps::Server& server) { port_ = server.port(); }
  // Every row once.
  void Fill() {
    v1::PsDefinition definition;
    definition.set_optimizer("Adagrad");
    auto& table = *definition.add_tables();
    table.set_name("table");
    table.set_dim(dim_);
    table.set_initializer("uniform");
    Ok(client_->Define(definition));
    const float none = 0;
    Ok(client_->SetInitialValues(&none));
    for (int64_t row = 0; row < rows_; row += kRowsPerPush) Push(row);
  }
  void Push(int64_t first) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < std::min(kRowsPerPush, rows_ - first); ++i) {
      ids.push_back(first + i);
    }
    const std::vector<float> gradients(ids.size() * static_cast<size_t>(dim_),
                                       0.5f);
    v1::PsPush push;
    push.set_shard("data");
    push.set_begin(next_);
    push.set_end(++next_);
    const ps::PushRows rows{0, ids, gradients.data()};
    Ok(client_->Push(push, nullptr, absl::MakeConstSpan(&rows, 1)));
  }

 private:
  const std::string dir_;
  const int64_t rows_;
  const int64_t dim_;
  std::atomic<uint16_t> port_ = 0;
  int64_t next_ = 0;
  elasticdl::Queue<v1::PsPartState> told_{1000000};
  std::unique_ptr<ps::Client> client_;
};

struct Times {
  double ms = 0;
  // Of reading.
  double cpu_ms = 0;
};

double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 +
         static_cast<double>(now.tv_nsec) * 1e-6;
}

class Watch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

// A log without a snapshot, or with one of everything but the last entries.
Times Restart(const std::string& dir, int64_t rows, int64_t dim,
              bool snapshot) {
  Bench bench(dir, rows, dim);
  // Half of what a push of every row takes: a snapshot is made on the way.
  const int64_t bytes = snapshot ? rows * (8 + 4 * dim) / 2 : int64_t{1} << 50;
  auto server = bench.Start("log", false, bytes);
  bench.Use(*server);
  bench.Fill();
  server.reset();
  const Watch watch;
  const double cpu = CpuMs();
  server = bench.Start("log", false, bytes);
  const double cpu_ms = CpuMs() - cpu;
  bench.Use(*server);
  bench.Push(0);
  return {watch.ms(), cpu_ms};
}

Times TakeOver(const std::string& dir, int64_t rows, int64_t dim) {
  Bench bench(dir, rows, dim);
  auto first = bench.Start("first", true, int64_t{1} << 50);
  auto second = bench.Start("second", true, int64_t{1} << 50);
  Bench::Assign(*second, 1, false, "");
  Bench::Assign(*first, 1, true,
                net::Address{"127.0.0.1", second->port()}.ToString());
  bench.Use(*first);
  bench.Hear(v1::PsPartState::kCurrent);
  bench.Fill();
  first.reset();
  const Watch watch;
  bench.Use(*second);
  Bench::Assign(*second, 2, true, "");
  bench.Push(0);
  return {watch.ms(), 0};
}

void Print(const char* what, const std::vector<Times>& all) {
  std::vector<double> ms;
  std::vector<double> cpu;
  for (const Times& times : all) {
    ms.push_back(times.ms);
    cpu.push_back(times.cpu_ms);
  }
  std::sort(ms.begin(), ms.end());
  std::sort(cpu.begin(), cpu.end());
  std::printf("| %s | %.0f ms | %.0f to %.0f | %.0f ms |\n", what,
              ms[ms.size() / 2], ms.front(), ms.back(), cpu[cpu.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 1000000;
  const int64_t dim = argc > 2 ? std::atoll(argv[2]) : 8;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  std::vector<Times> log;
  std::vector<Times> snapshot;
  std::vector<Times> backup;
  for (int i = 0; i < rounds; ++i) {
    char folder[] = "/tmp/ps_restart.XXXXXX";
    if (mkdtemp(folder) == nullptr) return 1;
    const std::string dir = folder;
    log.push_back(Restart(dir + "/a", rows, dim, false));
    snapshot.push_back(Restart(dir + "/b", rows, dim, true));
    backup.push_back(TakeOver(dir + "/c", rows, dim));
    Ok(elasticdl::RemoveTree(dir));
  }
  std::printf("| %lld rows of dim %lld, Adagrad | median | spread | CPU |\n",
              static_cast<long long>(rows), static_cast<long long>(dim));
  std::printf("|---|---|---|---|\n");
  Print("read the log", log);
  Print("read a snapshot and the rest of the log", snapshot);
  Print("backup takes over", backup);
  return 0;
}
