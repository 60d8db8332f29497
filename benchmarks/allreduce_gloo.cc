// Gloo's all-reduce. Started by allreduce_bench, one process per rank.
//   allreduce_gloo (plain|chunked) RANK SIZE FOLDER
// plain: gloo::allreduce, which PyTorch uses; chunked: AllreduceRingChunked.
#include <gloo/allreduce.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "allreduce_bind.h"
#include "allreduce_plan.h"

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

void Plain(const Context& context, float* data, size_t count) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data, count);
  options.setReduceFunction([](void* out, const void* a, const void* b,
                               size_t n) { gloo::sum<float>(out, a, b, n); });
  gloo::allreduce(options);
}

// The algorithm object is bound to one array; create a new one when the array
// changes.
class Chunked {
 public:
  explicit Chunked(const Context& context) : context_(context) {}
  void Run(float* data, size_t count) {
    if (algorithm_ == nullptr || data != data_ || count != count_) {
      algorithm_ = std::make_unique<gloo::AllreduceRingChunked<float>>(
          context_, std::vector<float*>{data}, static_cast<int>(count));
      data_ = data;
      count_ = count;
    }
    algorithm_->run();
  }

 private:
  const Context context_;
  std::unique_ptr<gloo::AllreduceRingChunked<float>> algorithm_;
  float* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string kind = argv[1];
  const int rank = std::atoi(argv[2]);
  const int size = std::atoi(argv[3]);
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  gloo::rendezvous::FileStore store(argv[4]);
  context->connectFullMesh(store, device);
  elasticdl::benchmarks::Bind(rank, size);
  Chunked chunked(context);
  elasticdl::benchmarks::Measure(
      rank == 0, size,
      [&](float* data, size_t count) {
        if (kind == "plain") {
          Plain(context, data, count);
        } else {
          chunked.Run(data, count);
        }
      },
      [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      });
  // Exit at once: Gloo's destructors would wait for its threads.
  std::_Exit(0);
}
