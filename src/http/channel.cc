#include "channel.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::http {
namespace {

// Connections kept for later; calls in a burst beyond it open their own.
constexpr size_t kMaxIdleChannels = 8;

int PollMs(absl::Duration left) {
  // Rounded up, so that the last millisecond does not spin.
  const int64_t ms =
      absl::ToInt64Milliseconds(std::min(left, absl::Hours(1))) + 1;
  return static_cast<int>(std::max<int64_t>(ms, 0));
}

}  // namespace

void CurlList::Add(const std::string& line) {
  curl_slist* longer = curl_slist_append(list_, line.c_str());
  if (longer != nullptr) list_ = longer;
}

Channel::Channel() : easy_(curl_easy_init()), multi_(curl_multi_init()) {}

Channel::~Channel() {
  if (easy_ != nullptr) curl_easy_cleanup(easy_);
  if (multi_ != nullptr) curl_multi_cleanup(multi_);
}

void Channel::Reset() { curl_easy_reset(easy_); }

absl::StatusOr<CURLcode> Channel::Transfer(const Limits& limits,
                                           const absl::Time& last_byte,
                                           const Cancellation* cancel) {
  const CURLMcode added = curl_multi_add_handle(multi_, easy_);
  if (added != CURLM_OK) {
    return absl::InternalError(
        absl::StrCat("curl_multi_add_handle: ", curl_multi_strerror(added)));
  }
  absl::StatusOr<CURLcode> result = Drive(limits, last_byte, cancel);
  // Closes the connection unless the transfer is complete.
  curl_multi_remove_handle(multi_, easy_);
  return result;
}

absl::StatusOr<CURLcode> Channel::Drive(const Limits& limits,
                                        const absl::Time& last_byte,
                                        const Cancellation* cancel) {
  const Clock& clock = Clock::Real();
  const absl::Time deadline = clock.Now() + limits.total;
  while (true) {
    if (cancel != nullptr && cancel->cancelled()) {
      return absl::CancelledError("cancelled");
    }
    int running = 0;
    const CURLMcode performed = curl_multi_perform(multi_, &running);
    if (performed != CURLM_OK) {
      return absl::InternalError(
          absl::StrCat("curl_multi_perform: ", curl_multi_strerror(performed)));
    }
    int left_over = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left_over)) {
      if (message->msg == CURLMSG_DONE) return message->data.result;
    }
    const absl::Time now = clock.Now();
    const absl::Time until = std::min(deadline, last_byte + limits.silence);
    if (now >= until) {
      return absl::DeadlineExceededError(
          until == deadline ? absl::StrCat("no answer within ",
                                           absl::FormatDuration(limits.total))
                            : absl::StrCat("silent for ", absl::FormatDuration(
                                                              limits.silence)));
    }
    curl_waitfd extra = {cancel == nullptr ? -1 : cancel->fd(),
                         CURL_WAIT_POLLIN, 0};
    const unsigned int num_extra = extra.fd >= 0 ? 1 : 0;
    curl_multi_poll(multi_, &extra, num_extra, PollMs(until - now), nullptr);
  }
}

ChannelPool::Lease::Lease(ChannelPool& pool, std::unique_ptr<Channel> channel)
    : pool_(pool), channel_(std::move(channel)) {}

ChannelPool::Lease::~Lease() { pool_.Return(std::move(channel_)); }

ChannelPool::Lease ChannelPool::Take() {
  std::unique_ptr<Channel> channel;
  {
    MutexLock lock(mu_);
    if (!idle_.empty()) {
      channel = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (channel == nullptr) channel = std::make_unique<Channel>();
  return Lease(*this, std::move(channel));
}

void ChannelPool::Return(std::unique_ptr<Channel> channel) {
  if (!channel->valid()) return;
  // Pointers to the caller's stack must not stay behind.
  channel->Reset();
  MutexLock lock(mu_);
  if (idle_.size() < kMaxIdleChannels) idle_.push_back(std::move(channel));
}

}  // namespace elasticdl::http
