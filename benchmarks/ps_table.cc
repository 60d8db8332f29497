// Rows per second and core of a parameter server's embedding table: lookups,
// and updates by an optimizer; bytes per row. Beside it, in the same run and
// interleaved:
//   single   the same table, one id at a time: nothing can be prefetched
//   map      what one would write first: a hash map from id to row number and
//            one array
//   array    the array alone, with prefetching and known row numbers: what
//            memory gives
//
//   ps_table [rows in millions] [rounds] [most gigabytes] [dim]
//   ps_table growth [most rows in millions]
//
// Both copies of a table together take no more than `most gigabytes` (default
// 7); above that it has fewer rows. `growth`: time of a step of 4,096 ids, a
// tenth of them new, while a table of dim 8 grows. Time is the thread's CPU
// time, so that other processes do not count.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "elasticdl/optim.h"
#include "elasticdl/ps/bucket.h"
#include "embedding_table.h"

namespace {

using elasticdl::optim::Optimizer;
using elasticdl::optim::OptimizerSpec;
using elasticdl::ps::EmbeddingTable;

// Ids of one request.
constexpr size_t kRequest = 4096;
constexpr size_t kRequests = 256;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// Touched memory of this process.
double ResidentBytes() {
  long pages = 0;
  long resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) {
    std::exit(1);
  }
  std::fclose(file);
  return static_cast<double>(resident) * 4096;
}

// Ids are no row numbers: popular ones are not neighbours in memory.
int64_t IdOf(int64_t row) {
  return static_cast<int64_t>(elasticdl::MixHash(static_cast<uint64_t>(row)));
}

// Ids ascend and none is twice, as the client sends them.
struct Request {
  std::vector<int64_t> ids;
  // The same in the order of their creation.
  std::vector<int64_t> rows;
};

// Rows in [0, rows): every one alike, or by a power law.
std::vector<Request> MakeRequests(int64_t rows, bool zipf) {
  std::mt19937_64 random(1);
  std::vector<Request> requests;
  // The inverse of the continuous power law with this exponent.
  constexpr double kExponent = 1.05;
  const double most = 1 - std::pow(static_cast<double>(rows), 1 - kExponent);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (size_t r = 0; r < kRequests; ++r) {
    std::map<int64_t, int64_t> chosen;
    for (size_t i = 0; i < kRequest; ++i) {
      int64_t row =
          static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
      if (zipf) {
        row = static_cast<int64_t>(
                  std::pow(1 - uniform(random) * most, 1 / (1 - kExponent))) -
              1;
        row = std::min(std::max<int64_t>(row, 0), rows - 1);
      }
      chosen.emplace(IdOf(row), row);
    }
    Request& request = requests.emplace_back();
    for (const auto& [id, row] : chosen) {
      request.ids.push_back(id);
      request.rows.push_back(row);
    }
  }
  return requests;
}

// The plain way.
class PlainTable {
 public:
  PlainTable(size_t dim, size_t arrays, int64_t rows)
      : dim_(dim),
        width_(dim * arrays),
        values_(static_cast<size_t>(rows) * width_, 0.01f) {
    index_.reserve(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      index_.emplace(IdOf(row), static_cast<size_t>(row));
    }
  }
  // No index: what memory gives to whoever knows where the rows are.
  void PullKnown(const std::vector<int64_t>& rows, float* out) const {
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size()) {
        const auto* next = reinterpret_cast<const char*>(At(rows[i + kAhead]));
        for (size_t at = 0; at < dim_ * sizeof(float); at += 64) {
          __builtin_prefetch(next + at);
        }
      }
      std::memcpy(out, At(rows[i]), dim_ * sizeof(float));
      out += dim_;
    }
  }
  void Pull(const std::vector<int64_t>& ids, float* out) const {
    for (const int64_t id : ids) {
      std::memcpy(out, values_.data() + index_.at(id) * width_,
                  dim_ * sizeof(float));
      out += dim_;
    }
  }
  void Push(const std::vector<int64_t>& ids, const float* grads,
            const Optimizer& optimizer, int64_t step) {
    for (const int64_t id : ids) {
      float* row = values_.data() + index_.at(id) * width_;
      float* slots[] = {row + dim_, row + 2 * dim_, row + 3 * dim_};
      optimizer.Apply(row, grads, slots, dim_, 0.01, step);
      grads += dim_;
    }
  }

 private:
  const float* At(int64_t row) const {
    return values_.data() + static_cast<size_t>(row) * width_;
  }

  const size_t dim_;
  const size_t width_;
  absl::flat_hash_map<int64_t, size_t> index_;
  std::vector<float> values_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::unique_ptr<Optimizer> MakeOptimizer(const std::string& text) {
  return Optimizer::Create(*OptimizerSpec::Parse(text)).value();
}

EmbeddingTable::Options TableOptions(size_t dim) {
  EmbeddingTable::Options options;
  options.name = "table";
  options.dim = dim;
  options.initializer = *elasticdl::ps::Initializer::Parse("uniform");
  options.seed = 1;
  return options;
}

void PushAll(EmbeddingTable& table, const std::vector<int64_t>& ids,
             const float* gradients, int64_t step) {
  if (table.Push(ids, gradients, 0.01, step).ok()) return;
  std::fprintf(stderr, "no memory\n");
  std::exit(1);
}

// Rows [from, to).
void Fill(EmbeddingTable& table, int64_t from, int64_t to) {
  const std::vector<float> gradients(kRequest * table.dim(), 0.01f);
  while (from < to) {
    std::vector<int64_t> ids;
    for (; from < to && ids.size() < kRequest; ++from) {
      ids.push_back(IdOf(from));
    }
    std::sort(ids.begin(), ids.end());
    PushAll(table, ids, gradients.data(), 1);
  }
}

struct Rates {
  std::vector<double> pull, single, map, array, push, map_push;
};

Rates MeasureIds(EmbeddingTable& table, PlainTable& plain,
                 const Optimizer& optimizer,
                 const std::vector<Request>& requests, int rounds) {
  const std::vector<float> gradients(kRequest * table.dim(), 0.01f);
  std::vector<float> out(kRequest * table.dim());
  size_t count = 0;
  for (const Request& request : requests) count += request.ids.size();
  int64_t step = 1;
  Rates rates;
  const auto timed = [&](std::vector<double>& list, const auto& body) {
    const double start = CpuSeconds();
    for (const Request& request : requests) body(request);
    list.push_back(static_cast<double>(count) / (CpuSeconds() - start) / 1e6);
  };
  for (int r = 0; r < rounds; ++r) {
    timed(rates.pull,
          [&](const Request& one) { table.Pull(one.ids, out.data()); });
    timed(rates.single, [&](const Request& one) {
      float* to = out.data();
      for (const int64_t& id : one.ids) {
        table.Pull({&id, 1}, to);
        to += table.dim();
      }
    });
    timed(rates.map,
          [&](const Request& one) { plain.Pull(one.ids, out.data()); });
    timed(rates.array,
          [&](const Request& one) { plain.PullKnown(one.rows, out.data()); });
    timed(rates.push, [&](const Request& one) {
      PushAll(table, one.ids, gradients.data(), ++step);
    });
    timed(rates.map_push, [&](const Request& one) {
      plain.Push(one.ids, gradients.data(), optimizer, ++step);
    });
  }
  return rates;
}

void Measure(const std::string& optimizer_text, size_t dim, int64_t rows,
             int rounds, double most_bytes) {
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(optimizer_text);
  const size_t arrays = 1 + optimizer->slot_names().size();
  const size_t payload = arrays * dim * sizeof(float);
  rows = std::min(
      rows,
      static_cast<int64_t>(most_bytes / static_cast<double>(2 * payload + 48)));
  const double before = ResidentBytes();
  EmbeddingTable table(TableOptions(dim), *optimizer);
  Fill(table, 0, rows);
  const double per_row = (ResidentBytes() - before) / static_cast<double>(rows);
  PlainTable plain(dim, arrays, rows);
  for (const bool zipf : {false, true}) {
    const Rates rates =
        MeasureIds(table, plain, *optimizer, MakeRequests(rows, zipf), rounds);
    const double pull = Median(rates.pull);
    const double push = Median(rates.push);
    std::printf(
        "%-8s %4zu %6.1f %-8s %7.2f %7.2f %5.2f %7.2f %5.2f %7.2f %5.2f  "
        "%7.2f %7.2f %5.2f  %7.1f %6.1f\n",
        optimizer_text.c_str(), dim, static_cast<double>(rows) / 1e6,
        zipf ? "zipf" : "uniform", pull, Median(rates.single),
        pull / Median(rates.single), Median(rates.map),
        pull / Median(rates.map), Median(rates.array),
        pull / Median(rates.array), push, Median(rates.map_push),
        push / Median(rates.map_push), per_row,
        per_row - static_cast<double>(payload));
    std::fflush(stdout);
  }
}

// A tenth of each step's ids is new; the others are any of those that are
// there.
void Grow(int64_t most) {
  constexpr size_t kNew = kRequest / 10;
  constexpr int kSteps = 400;
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer("Adagrad");
  const double before = ResidentBytes();
  EmbeddingTable table(TableOptions(8), *optimizer);
  std::vector<float> buffer(kRequest * table.dim(), 0.01f);
  std::mt19937_64 random(1);
  std::printf("%10s %10s %10s %8s\n", "rows", "µs/step", "p99", "B/row");
  for (int64_t rows = 100000; rows <= most; rows *= 2) {
    Fill(table, table.rows(), rows);
    std::vector<double> times;
    for (int step = 0; step < kSteps; ++step) {
      std::set<int64_t> chosen;
      const int64_t there = table.rows();
      for (size_t i = 0; i < kNew; ++i) {
        chosen.insert(IdOf(there + static_cast<int64_t>(i)));
      }
      while (chosen.size() < kRequest) {
        chosen.insert(IdOf(
            static_cast<int64_t>(random() % static_cast<uint64_t>(there))));
      }
      const std::vector<int64_t> ids(chosen.begin(), chosen.end());
      const double start = CpuSeconds();
      table.Pull(ids, buffer.data());
      PushAll(table, ids, buffer.data(), step + 1);
      times.push_back((CpuSeconds() - start) * 1e6);
    }
    std::sort(times.begin(), times.end());
    std::printf("%10ld %10.0f %10.0f %8.1f\n", static_cast<long>(table.rows()),
                Median(times), times[times.size() * 99 / 100],
                (ResidentBytes() - before) / static_cast<double>(table.rows()));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, double otherwise) {
    return argc > at ? std::atof(argv[at]) : otherwise;
  };
  if (argc > 1 && std::strcmp(argv[1], "growth") == 0) {
    Grow(static_cast<int64_t>(number(2, 60) * 1e6));
    return 0;
  }
  const auto rows = static_cast<int64_t>(number(1, 10) * 1e6);
  const int rounds = static_cast<int>(number(2, 5));
  std::printf("requests of %zu ids; million rows per CPU second\n", kRequest);
  std::printf(
      "%-8s %4s %6s %-8s %7s %7s %5s %7s %5s %7s %5s  %7s %7s %5s  %7s "
      "%6s\n",
      "", "dim", "Mrows", "ids", "pull", "single", "x", "map", "x", "array",
      "x", "push", "map", "x", "B/row", "extra");
  for (const size_t dim : {8, 32, 128}) {
    if (argc > 4 && dim != static_cast<size_t>(number(4, 0))) continue;
    for (const char* optimizer : {"Adagrad", "Adam"}) {
      Measure(optimizer, dim, rows, rounds, number(3, 7) * 1e9);
    }
  }
  return 0;
}
