// How long a worker is held up while buckets move between parameter servers:
// one worker pulls rows and pushes gradients to two servers, which become three
// and two again. Minibatches at rest and during moves, in one run.
//
//   ps_move [rows of the table] [dim] [moves] [rows per minibatch]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bucket_moves.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/queue.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/ps/bucket_mover.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/server.h"
#include "elasticdl/ps/server_book.h"

namespace {

namespace net = elasticdl::net;
namespace ps = elasticdl::ps;
namespace v1 = elasticdl::v1;
using elasticdl::Clock;
using elasticdl::master::BucketMoves;

constexpr char kToken[] = "a token for this benchmark";
constexpr int kServers = 3;

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

// Three servers with logs, and what a master does for a move.
class Servers {
 public:
  explicit Servers(const std::string& dir) : moved_(1024) {
    v1::Servers addresses;
    for (int i = 0; i < kServers; ++i) {
      ps::ServerOptions options;
      options.server = i;
      options.address = {"127.0.0.1", 0};
      options.secret = kToken;
      options.log_dir = dir + "/ps-" + std::to_string(i);
      Ok(elasticdl::MakeDirectories(options.log_dir));
      servers_.push_back(Value(ps::Server::Start(options)));
      addresses.add_addresses(
          net::Address{"127.0.0.1", servers_.back()->port()}.ToString());
    }
    book_ = std::make_unique<ps::ServerBook>(addresses);
    for (int i = 0; i < kServers; ++i) {
      ps::BucketMover::Options options;
      options.server = i;
      options.secret = kToken;
      options.tell = [this, i](v1::ServerMoved moved) {
        moved_.Push({i, std::move(moved)});
      };
      movers_.push_back(std::make_unique<ps::BucketMover>(
          options, *servers_[static_cast<size_t>(i)], addresses));
    }
  }
  ~Servers() { movers_.clear(); }

  ps::ServerBook& book() { return *book_; }

  // Returns when all has moved; the number of steps.
  int Scale(int servers) {
    moves_.SetTarget(servers);
    int steps = 0;
    while (moves_.moving()) {
      const auto there = [](int) { return true; };
      if (moves_.CanBegin(Clock::Real().Now(), there)) {
        moves_.Begin(Clock::Real().Now());
        ++steps;
        for (int i = 0; i < moves_.participants(); ++i) {
          movers_[static_cast<size_t>(i)]->Begin(moves_.step());
        }
      }
      const auto told = moved_.Pop(
          std::max(absl::ZeroDuration(), moves_.next() - Clock::Real().Now()));
      if (!told.has_value()) continue;
      if (!told->second.error().empty()) {
        std::fprintf(stderr, "%s\n", told->second.error().c_str());
        std::exit(1);
      }
      moves_.Done(Clock::Real().Now(), told->first, told->second);
    }
    return steps;
  }

 private:
  BucketMoves moves_{2};
  std::vector<std::unique_ptr<ps::Server>> servers_;
  std::unique_ptr<ps::ServerBook> book_;
  elasticdl::Queue<std::pair<int, v1::ServerMoved>> moved_;
  std::vector<std::unique_ptr<ps::BucketMover>> movers_;
};

void Print(const char* what, std::vector<double>& ms, double usual) {
  if (ms.empty()) return;
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double part) {
    return ms[static_cast<size_t>(part * static_cast<double>(ms.size() - 1))];
  };
  std::printf(
      "%-10s %8zu minibatches: %7.2f ms p50, %7.2f ms p99, %7.2f ms "
      "longest; pause %7.2f ms p99\n",
      what, ms.size(), at(0.5), at(0.99), ms.back(), at(0.99) - usual);
}

void Run(int64_t table_rows, int64_t dim, int moves, size_t rows,
         const std::string& dir) {
  Servers servers(dir);
  ps::Client::Options options;
  options.secret = kToken;
  options.find = [&](int server, absl::Duration timeout) {
    return servers.book().Find(server, timeout);
  };
  ps::Client client(options, ps::BucketMap::Even(2));
  v1::PsDefinition definition;
  definition.set_optimizer("Adagrad(lr=0.01)");
  auto& dense = *definition.add_dense();
  dense.set_name("dense");
  dense.add_shape(100000);
  auto& table = *definition.add_tables();
  table.set_name("t");
  table.set_dim(dim);
  table.set_initializer("uniform");
  Ok(client.Define(definition));
  std::vector<float> values(100000, 0.01f);
  Ok(client.SetInitialValues(values.data()));
  int64_t next = 0;
  const auto push = [&](const std::vector<int64_t>& ids,
                        const std::vector<float>& gradients) {
    v1::PsPush name;
    name.set_shard("s");
    name.set_begin(next);
    name.set_end(++next);
    Ok(client.Push(name, values.data(), {{0, ids, gradients.data()}}));
  };
  constexpr int64_t kFill = 8192;
  std::vector<float> gradients(kFill * static_cast<size_t>(dim), 0.01f);
  for (int64_t from = 0; from < table_rows; from += kFill) {
    std::vector<int64_t> ids;
    for (int64_t id = from; id < std::min(table_rows, from + kFill); ++id) {
      ids.push_back(id);
    }
    push(ids, gradients);
  }
  gradients.resize(rows * static_cast<size_t>(dim));
  std::vector<float> pulled(gradients.size());
  std::mt19937_64 random(1);
  std::atomic<bool> moving = false;
  std::atomic<bool> over = false;
  std::vector<double> at_rest;
  std::vector<double> during;
  elasticdl::Thread worker("worker", [&] {
    while (!over) {
      std::set<int64_t> some;
      while (some.size() < rows) {
        some.insert(
            static_cast<int64_t>(random() % static_cast<uint64_t>(table_rows)));
      }
      const std::vector<int64_t> ids(some.begin(), some.end());
      const bool before = moving;
      const auto start = std::chrono::steady_clock::now();
      Value(client.Pull(values.data(), {{0, ids, pulled.data()}}));
      push(ids, gradients);
      const double ms = std::chrono::duration<double, std::milli>(
                            std::chrono::steady_clock::now() - start)
                            .count();
      (before || moving ? during : at_rest).push_back(ms);
    }
  });
  // As long at rest as in a move.
  double seconds = 2;
  int steps = 0;
  double moved_seconds = 0;
  elasticdl::Queue<int> never(1);
  for (int i = 0; i < moves; ++i) {
    never.Pop(absl::Seconds(seconds));
    moving = true;
    const auto start = std::chrono::steady_clock::now();
    steps += servers.Scale(i % 2 == 0 ? 3 : 2);
    seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    moved_seconds += seconds;
    moving = false;
  }
  over = true;
  worker.Join();
  std::printf(
      "%d moves of a third of %ld rows of dim %ld (Adagrad): %.2f s "
      "and %d steps each\n",
      moves, static_cast<long>(table_rows), static_cast<long>(dim),
      moved_seconds / moves, steps / moves);
  std::vector<double> sorted = at_rest;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted.empty() ? 0 : sorted[sorted.size() / 2];
  Print("at rest", at_rest, usual);
  Print("in a move", during, usual);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t table_rows = argc > 1 ? std::atoll(argv[1]) : 1000000;
  const int64_t dim = argc > 2 ? std::atoll(argv[2]) : 32;
  const int moves = argc > 3 ? std::atoi(argv[3]) : 6;
  const size_t rows = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 4096;
  char dir[] = "/tmp/ps-move-XXXXXX";
  if (mkdtemp(dir) == nullptr) return 1;
  Run(table_rows, dim, moves, rows, dir);
  elasticdl::RemoveTree(dir).IgnoreError();
  return 0;
}
