// libcurl's handles with owners, and a pool of them.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/kube/transport.h"
#include "http_transport.h"

namespace elasticdl::kube {

// Thread-compatible. One transfer at a time, and the connection that the last
// one left open. The multi handle is there because only it can wait for a
// descriptor of ours as well.
class CurlChannel {
 public:
  CurlChannel();
  ~CurlChannel();
  CurlChannel(const CurlChannel&) = delete;
  CurlChannel& operator=(const CurlChannel&) = delete;

  // False when libcurl has no memory.
  bool valid() const { return easy_ != nullptr && multi_ != nullptr; }
  CURL* easy() { return easy_; }
  // Forgets all options; the connection stays.
  void Reset();

  // Makes the transfer that the options describe. `last_byte` is when something
  // came; the caller's callbacks move it on. OK: libcurl is through, `result`
  // says how. DEADLINE_EXCEEDED, CANCELLED.
  absl::Status Transfer(const TransferLimits& limits,
                        const absl::Time& last_byte, const Cancellation* cancel,
                        CURLcode& result);

 private:
  absl::Status Drive(const TransferLimits& limits, const absl::Time& last_byte,
                     const Cancellation* cancel, CURLcode& result);

  CURL* const easy_;
  CURLM* const multi_;
};

// Thread-safe.
class CurlPool {
 public:
  // Returns its channel to the pool at the end of its life.
  class Lease {
   public:
    Lease(CurlPool& pool, std::unique_ptr<CurlChannel> channel);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    CurlChannel& channel() { return *channel_; }

   private:
    CurlPool& pool_;
    std::unique_ptr<CurlChannel> channel_;
  };

  // The channel that was used last (its connection is the likeliest to be
  // alive), or a new one.
  Lease Take();

 private:
  void Return(std::unique_ptr<CurlChannel> channel);

  Mutex mu_;
  std::vector<std::unique_ptr<CurlChannel>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::kube
