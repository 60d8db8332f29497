// The connection of a client to one server, and a request over it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/net/socket.h"
#include "elasticdl/ps/client.h"
#include "elasticdl/ps/dense_layout.h"
#include "elasticdl/v1/ps.pb.h"
#include "wire.h"

namespace elasticdl::ps {

// One request to one server.
struct Client::Call {
  v1::PsRequest request;
  std::vector<iovec> payload;
  // Bytes that the payload looks at and nobody else keeps.
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<float>> floats;
  bool done = false;
  // Of the last try.
  absl::Status status;
  v1::PsReply reply;
};

// Thread-compatible, except Interrupt and Cancel.
class Client::Lane {
 public:
  Lane(const Options& options, int server)
      : options_(options), server_(server) {}

  absl::Status Send(Call& call, absl::Duration timeout);
  absl::Status Receive(Call& call, absl::Duration timeout);
  // An answer may be on its way that nobody will read.
  void Drop();
  // The connection, if there is one, is of no more use. Any thread.
  void Interrupt();
  void Cancel();

  // Of the last answer.
  Buffer answer;
  Buffer kept;
  // Of the dense values that the worker has from this server.
  int64_t dense_version = -1;
  uint64_t incarnation = 0;
  // Of the last pull.
  int64_t version = 0;
  std::vector<DenseSlice> slices;

 private:
  absl::Status Connect(absl::Duration timeout);
  // Whoever answers at the address may not be the server any more, or not yet.
  absl::Status Greeted(absl::Status status);
  // A connection with an error is of no more use.
  absl::Status Ended(const absl::Status& status);

  const Options& options_;
  const int server_;
  uint64_t number_ = 0;
  absl::Time stranger_since_ = absl::InfiniteFuture();
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  int64_t interrupts_ ABSL_GUARDED_BY(mu_) = 0;
  // Replaced under the lock, used by the thread of the client.
  std::unique_ptr<net::Socket> socket_;
};

}  // namespace elasticdl::ps
