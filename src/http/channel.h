// Owners of libcurl's handles, and a pool of them.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/http/client.h"

namespace elasticdl::http {

// libcurl's list of strings.
class CurlList {
 public:
  CurlList() = default;
  ~CurlList() { curl_slist_free_all(list_); }
  CurlList(const CurlList&) = delete;
  CurlList& operator=(const CurlList&) = delete;
  void Add(const std::string& line);
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// Thread-compatible. One transfer at a time, and the connection that the last
// one left open. It has a multi handle because only that can wait for another
// descriptor (the cancellation's) as well.
class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // False when libcurl has no memory.
  bool valid() const { return easy_ != nullptr && multi_ != nullptr; }
  CURL* easy() { return easy_; }
  // Forgets all options; the connection stays.
  void Reset();

  // Makes the transfer that the handle's options describe and returns libcurl's
  // result. `last_byte` is when the last byte arrived; the caller's callbacks
  // update it. DEADLINE_EXCEEDED, CANCELLED.
  absl::StatusOr<CURLcode> Transfer(const Limits& limits,
                                    const absl::Time& last_byte,
                                    const Cancellation* cancel);

 private:
  absl::StatusOr<CURLcode> Drive(const Limits& limits,
                                 const absl::Time& last_byte,
                                 const Cancellation* cancel);

  CURL* const easy_;
  CURLM* const multi_;
};

// Thread-safe.
class ChannelPool {
 public:
  // Returns its channel to the pool at the end of its life.
  class Lease {
   public:
    Lease(ChannelPool& pool, std::unique_ptr<Channel> channel);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Channel& channel() { return *channel_; }

   private:
    ChannelPool& pool_;
    std::unique_ptr<Channel> channel_;
  };

  // The channel that was used last (its connection is the likeliest to be
  // alive), or a new one.
  Lease Take();

 private:
  void Return(std::unique_ptr<Channel> channel);

  Mutex mu_;
  std::vector<std::unique_ptr<Channel>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::http
