// Rows per second between one worker and one parameter server over loopback:
// pulls, and pushes that are applied, with and without a log; and values per
// second of dense parameters. Beside them, in the same run, an echo of the same
// bytes over the same sockets (what is left is the server's own work), and the
// same bytes in unary gRPC calls.
//
//   ps_wire [rows per request] [dim] [seconds per measurement] [rounds]
//
// Per second, and per CPU second of the server: the process's CPU time without
// that of the thread that plays the worker.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "elasticdl/common/file.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"
#include "grpc_echo.h"

namespace {

namespace net = elasticdl::net;
namespace ps = elasticdl::ps;
namespace v1 = elasticdl::v1;

constexpr char kToken[] = "a token for this benchmark";
constexpr absl::Duration kTimeout = absl::Seconds(60);

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}
void Ok(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double CpuSeconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Rates {
  // Calls per second, and per CPU second of all other threads.
  double calls = 0;
  double per_core = 0;
};

template <typename Body>
Rates Rate(double seconds, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  const auto others = [] {
    return CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) -
           CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
  };
  const double before = others();
  int64_t calls = 0;
  while (since() < seconds) {
    body();
    ++calls;
  }
  const auto count = static_cast<double>(calls);
  return {count / since(), count / (others() - before)};
}

// Takes `there` bytes and answers with `back` bytes.
Rates EchoRate(size_t there, size_t back, double seconds) {
  auto listener = Value(net::Listener::Open({"127.0.0.1", 0}));
  elasticdl::Thread server("echo", [&] {
    auto socket = Value(listener.Accept());
    std::string in(there, '\0');
    const std::string out(back, 'x');
    while (socket.Read(in.data(), in.size(), kTimeout).ok()) {
      if (!socket.Write(out, kTimeout).ok()) break;
    }
  });
  Rates rates;
  {
    auto socket =
        Value(net::Socket::Connect({"127.0.0.1", listener.port()}, kTimeout));
    const std::string out(there, 'x');
    std::string in(back, '\0');
    rates = Rate(seconds, [&] {
      Ok(socket.Write(out, kTimeout));
      Ok(socket.Read(in.data(), in.size(), kTimeout));
    });
  }
  server.Join();
  return rates;
}

Rates GrpcRate(size_t there, size_t back, double seconds) {
  Rates rates;
  elasticdl::bench::WithGrpcEcho(there, back, [&](const auto& call) {
    call();
    rates = Rate(seconds, call);
  });
  return rates;
}

// A server and its only worker.
class Pair {
 public:
  Pair(const std::string& log_dir, const v1::PsDefinition& definition)
      : server_(Start(log_dir)),
        client_(ClientOptions(), ps::BucketMap::Even(1)) {
    Ok(client_.Define(definition));
    int64_t count = 0;
    for (const auto& dense : definition.dense()) count += dense.shape(0);
    const std::vector<float> values(static_cast<size_t>(count));
    Ok(client_.SetInitialValues(values.data()));
  }
  // Pushes of new records.
  void Push(const float* gradients, absl::Span<const ps::PushRows> rows) {
    v1::PsPush name;
    name.set_shard("s");
    name.set_begin(next_);
    name.set_end(++next_);
    Ok(client_.Push(name, gradients, rows));
  }
  ps::Client& client() { return client_; }

 private:
  static std::unique_ptr<ps::Server> Start(const std::string& log_dir) {
    ps::ServerOptions options;
    options.address = {"127.0.0.1", 0};
    options.secret = kToken;
    options.log_dir = log_dir;
    return Value(ps::Server::Start(options));
  }
  ps::Client::Options ClientOptions() {
    ps::Client::Options options;
    options.secret = kToken;
    options.find = [this](int, absl::Duration) {
      return absl::StatusOr<net::Address>(
          net::Address{"127.0.0.1", server_->port()});
    };
    return options;
  }

  const std::unique_ptr<ps::Server> server_;
  ps::Client client_;
  int64_t next_ = 0;
};

void Print(const char* what, const std::string& log_dir, double unit,
           const Rates& rates, const Rates& echo, const Rates& grpc) {
  std::printf("%-12s %-6s %9.2f %9.2f   %9.2f %5.2f   %9.2f %5.2f\n", what,
              log_dir.empty() ? "" : "log", rates.calls * unit,
              rates.per_core * unit, echo.calls * unit,
              rates.calls / echo.calls, grpc.calls * unit,
              rates.calls / grpc.calls);
  std::fflush(stdout);
}

void MeasureRows(const std::string& log_dir, size_t rows, int64_t dim,
                 double seconds) {
  v1::PsDefinition definition;
  definition.set_optimizer("Adagrad(lr=0.01)");
  auto& table = *definition.add_tables();
  table.set_name("t");
  table.set_dim(dim);
  table.set_initializer("uniform");
  Pair pair(log_dir, definition);
  // 64 requests over a million ids.
  std::mt19937_64 random(1);
  std::vector<std::vector<int64_t>> requests;
  for (int i = 0; i < 64; ++i) {
    std::set<int64_t> ids;
    while (ids.size() < rows) {
      ids.insert(static_cast<int64_t>(random() % 1000000));
    }
    requests.emplace_back(ids.begin(), ids.end());
  }
  std::vector<float> values(rows * static_cast<size_t>(dim), 0.01f);
  size_t turn = 0;
  const auto next = [&]() -> const std::vector<int64_t>& {
    return requests[turn++ % requests.size()];
  };
  const auto push = [&] { pair.Push(nullptr, {{0, next(), values.data()}}); };
  for (size_t i = 0; i < requests.size(); ++i) push();
  std::vector<float> pulled(values.size());
  const Rates pulls = Rate(seconds, [&] {
    Value(pair.client().Pull(nullptr, {{0, next(), pulled.data()}}));
  });
  const Rates pushes = Rate(seconds, push);
  const size_t ids = rows * sizeof(int64_t);
  const size_t all = values.size() * sizeof(float);
  const double unit = static_cast<double>(rows) / 1e6;
  Print("pull rows", log_dir, unit, pulls, EchoRate(ids, all, seconds),
        GrpcRate(ids, all, seconds));
  Print("push rows", log_dir, unit, pushes, EchoRate(ids + all, 16, seconds),
        GrpcRate(ids + all, 16, seconds));
}

// A megabyte of dense parameters: pushed, and pulled after each push.
void MeasureDense(const std::string& log_dir, double seconds) {
  constexpr size_t kValues = 1 << 18;
  v1::PsDefinition definition;
  definition.set_optimizer("Adagrad(lr=0.01)");
  auto& dense = *definition.add_dense();
  dense.set_name("d");
  dense.add_shape(kValues);
  Pair pair(log_dir, definition);
  const std::vector<float> gradients(kValues, 0.01f);
  std::vector<float> values(kValues);
  const Rates rates = Rate(seconds, [&] {
    pair.Push(gradients.data(), {});
    Value(pair.client().Pull(values.data(), {}));
  });
  const size_t bytes = kValues * sizeof(float);
  Print("dense MB", log_dir, 2 * static_cast<double>(bytes) / 1e6, rates,
        EchoRate(bytes, bytes, seconds), GrpcRate(bytes, bytes, seconds));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4096;
  const int64_t dim = argc > 2 ? std::atoll(argv[2]) : 32;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 3;
  std::printf("%zu rows of dim %ld per request; millions per second\n", rows,
              static_cast<long>(dim));
  std::printf("%-12s %-6s %9s %9s   %9s %5s   %9s %5s\n", "", "", "rate",
              "per core", "echo", "x", "gRPC", "x");
  for (int round = 0; round < rounds; ++round) {
    char dir[] = "/tmp/ps-wire-XXXXXX";
    if (mkdtemp(dir) == nullptr) return 1;
    const std::string logs = dir;
    MeasureRows("", rows, dim, seconds);
    MeasureRows(logs + "/rows", rows, dim, seconds);
    MeasureDense("", seconds);
    MeasureDense(logs + "/dense", seconds);
    elasticdl::RemoveTree(dir).IgnoreError();
  }
  return 0;
}
