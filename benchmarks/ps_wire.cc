// Rows per second between one worker and one parameter server over loopback:
// pulls, and pushes that are applied, with and without a log. Beside them, in
// the same run, an echo of the same bytes over the same sockets: what is left
// is the server's own work.
//
//   ps_wire [rows per request] [dim] [seconds per measurement]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

// Calls per second.
template <typename Body>
double Rate(double seconds, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  int64_t calls = 0;
  while (since() < seconds) {
    body();
    ++calls;
  }
  return static_cast<double>(calls) / since();
}

// Takes `there` bytes and answers with `back` bytes.
double EchoRate(size_t there, size_t back, double seconds) {
  auto listener = Value(net::Listener::Open({"127.0.0.1", 0}));
  elasticdl::Thread server("echo", [&] {
    auto socket = Value(listener.Accept());
    std::string in(there, '\0');
    const std::string out(back, 'x');
    while (socket.Read(in.data(), in.size(), kTimeout).ok()) {
      if (!socket.Write(out, kTimeout).ok()) break;
    }
  });
  double rate = 0;
  {
    auto socket =
        Value(net::Socket::Connect({"127.0.0.1", listener.port()}, kTimeout));
    const std::string out(there, 'x');
    std::string in(back, '\0');
    rate = Rate(seconds, [&] {
      Ok(socket.Write(out, kTimeout));
      Ok(socket.Read(in.data(), in.size(), kTimeout));
    });
  }
  server.Join();
  return rate;
}

void Measure(const std::string& log_dir, size_t rows, int64_t dim,
             double seconds) {
  ps::ServerOptions options;
  options.address = {"127.0.0.1", 0};
  options.secret = kToken;
  options.log_dir = log_dir;
  const auto server = Value(ps::Server::Start(options));
  ps::Client::Options client_options;
  client_options.secret = kToken;
  client_options.find = [&](int, absl::Duration) {
    return absl::StatusOr<net::Address>(
        net::Address{"127.0.0.1", server->port()});
  };
  ps::Client client(client_options, ps::BucketMap::Even(1));
  v1::PsDefinition definition;
  definition.set_optimizer("Adagrad(lr=0.01)");
  auto& table = *definition.add_tables();
  table.set_name("t");
  table.set_dim(dim);
  table.set_initializer("uniform");
  Ok(client.Define(definition));
  Ok(client.SetInitialValues(nullptr));
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
  int64_t next = 0;
  const auto push = [&] {
    v1::PsPush name;
    name.set_shard("s");
    name.set_begin(next);
    name.set_end(++next);
    const auto& ids = requests[static_cast<size_t>(next) % requests.size()];
    Ok(client.Push(name, nullptr, {{0, ids, values.data()}}));
  };
  for (size_t i = 0; i < requests.size(); ++i) push();
  size_t turn = 0;
  std::vector<float> pulled(values.size());
  const double pulls = Rate(seconds, [&] {
    const auto& ids = requests[turn++ % requests.size()];
    Value(client.Pull(nullptr, {{0, ids, pulled.data()}}));
  });
  const double pushes = Rate(seconds, push);
  const auto count = static_cast<double>(rows);
  const size_t id_bytes = rows * sizeof(int64_t);
  const size_t row_bytes = values.size() * sizeof(float);
  const double echo_pull = EchoRate(id_bytes, row_bytes, seconds);
  const double echo_push = EchoRate(id_bytes + row_bytes, 16, seconds);
  std::printf("%-8s %8.2f %8.2f %6.2f   %8.2f %8.2f %6.2f\n",
              log_dir.empty() ? "no log" : "log", pulls * count / 1e6,
              echo_pull * count / 1e6, pulls / echo_pull, pushes * count / 1e6,
              echo_push * count / 1e6, pushes / echo_push);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4096;
  const int64_t dim = argc > 2 ? std::atoll(argv[2]) : 32;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 2;
  std::printf("%zu rows of dim %ld per request; million rows per second\n",
              rows, static_cast<long>(dim));
  std::printf("%-8s %8s %8s %6s   %8s %8s %6s\n", "", "pull", "echo", "ratio",
              "push", "echo", "ratio");
  for (int round = 0; round < 3; ++round) {
    Measure("", rows, dim, seconds);
    char dir[] = "/tmp/ps-wire-XXXXXX";
    if (mkdtemp(dir) == nullptr) return 1;
    Measure(dir, rows, dim, seconds);
    elasticdl::RemoveTree(dir).IgnoreError();
  }
  return 0;
}
