// Rows per second and core of a parameter server's embedding table: lookups,
// and updates by an optimizer; bytes per row. Beside it, in the same run and
// interleaved, what one would write first: a hash map from id to row number and
// one array.
//
//   ps_table [rows in millions] [rounds]
//
// Time is the thread's CPU time, so that other processes do not count.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
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

// Ids in [0, rows): every one alike, or by a power law. Ids of a request ascend
// and none is twice, as the client sends them.
std::vector<std::vector<int64_t>> MakeRequests(int64_t rows, bool zipf) {
  std::mt19937_64 random(1);
  std::vector<std::vector<int64_t>> requests;
  // The inverse of the continuous power law with this exponent.
  constexpr double kExponent = 1.05;
  const double most = 1 - std::pow(static_cast<double>(rows), 1 - kExponent);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (size_t r = 0; r < kRequests; ++r) {
    std::vector<int64_t> ids;
    while (ids.size() < kRequest) {
      int64_t id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
      if (zipf) {
        id = static_cast<int64_t>(
                 std::pow(1 - uniform(random) * most, 1 / (1 - kExponent))) -
             1;
        id = std::min(std::max<int64_t>(id, 0), rows - 1);
      }
      // Popular ids are not neighbours in memory.
      ids.push_back(
          static_cast<int64_t>(elasticdl::MixHash(static_cast<uint64_t>(id))));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    requests.push_back(std::move(ids));
  }
  return requests;
}

// The plain way.
class PlainTable {
 public:
  PlainTable(size_t dim, size_t arrays) : dim_(dim), width_(dim * arrays) {}
  void Add(int64_t id) {
    index_.emplace(id, index_.size());
    values_.resize(values_.size() + width_);
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
  const size_t dim_;
  const size_t width_;
  absl::flat_hash_map<int64_t, size_t> index_;
  std::vector<float> values_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const std::string& optimizer_text, size_t dim, int64_t rows,
             int rounds) {
  const std::unique_ptr<Optimizer> optimizer =
      Optimizer::Create(*OptimizerSpec::Parse(optimizer_text)).value();
  const double before = ResidentBytes();
  EmbeddingTable table(
      {"table", dim, *elasticdl::ps::Initializer::Parse("uniform"), 1},
      *optimizer);
  std::vector<float> buffer(kRequest * dim, 0.01f);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows; i += kRequest) {
    ids.clear();
    for (int64_t j = i; j < std::min<int64_t>(rows, i + kRequest); ++j) {
      ids.push_back(
          static_cast<int64_t>(elasticdl::MixHash(static_cast<uint64_t>(j))));
    }
    std::sort(ids.begin(), ids.end());
    if (!table.Push(ids, buffer.data(), 0.01, 1).ok()) std::exit(1);
  }
  const double per_row = (ResidentBytes() - before) / static_cast<double>(rows);
  const size_t arrays = 1 + optimizer->slot_names().size();
  PlainTable plain(dim, arrays);
  for (int64_t i = 0; i < rows; ++i) {
    plain.Add(
        static_cast<int64_t>(elasticdl::MixHash(static_cast<uint64_t>(i))));
  }
  std::vector<float> out(kRequest * dim);
  int64_t step = 1;
  for (const bool zipf : {false, true}) {
    const auto requests = MakeRequests(rows, zipf);
    size_t count = 0;
    for (const auto& request : requests) count += request.size();
    std::vector<double> pulls, pushes, plain_pulls, plain_pushes;
    const auto timed = [&](std::vector<double>& rates, const auto& body) {
      const double start = CpuSeconds();
      for (const auto& request : requests) body(request);
      rates.push_back(static_cast<double>(count) / (CpuSeconds() - start));
    };
    for (int r = 0; r < rounds; ++r) {
      timed(pulls,
            [&](const auto& request) { table.Pull(request, out.data()); });
      timed(plain_pulls,
            [&](const auto& request) { plain.Pull(request, out.data()); });
      timed(pushes, [&](const auto& request) {
        if (!table.Push(request, buffer.data(), 0.01, ++step).ok()) {
          std::exit(1);
        }
      });
      timed(plain_pushes, [&](const auto& request) {
        plain.Push(request, buffer.data(), *optimizer, ++step);
      });
    }
    std::printf(
        "%-8s %4zu %-8s %8.2f %8.2f %6.2f   %8.2f %8.2f %6.2f   %6.1f %6.1f\n",
        optimizer_text.c_str(), dim, zipf ? "zipf" : "uniform",
        Median(pulls) / 1e6, Median(plain_pulls) / 1e6,
        Median(pulls) / Median(plain_pulls), Median(pushes) / 1e6,
        Median(plain_pushes) / 1e6, Median(pushes) / Median(plain_pushes),
        per_row, per_row - static_cast<double>(arrays * dim * sizeof(float)));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto rows =
      static_cast<int64_t>((argc > 1 ? std::atof(argv[1]) : 10) * 1e6);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  std::printf("%ld rows, requests of %zu ids; million rows per CPU second\n",
              static_cast<long>(rows), kRequest);
  std::printf("%-8s %4s %-8s %8s %8s %6s   %8s %8s %6s   %6s %6s\n", "", "dim",
              "ids", "pull", "plain", "ratio", "push", "plain", "ratio",
              "B/row", "extra");
  for (const size_t dim : {8, 32, 128}) {
    Measure("Adagrad", dim, rows, rounds);
    if (dim < 128) Measure("Adam", dim, rows, rounds);
  }
  return 0;
}
