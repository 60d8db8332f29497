// Detects within a fraction of a millisecond that a process on this host was
// killed.
//
// When a process is killed, the kernel first frees its memory, which takes tens
// of milliseconds for a worker, and only then closes its sockets and reports
// its end to pidfds. Before all that it handles the words of the *robust list*
// of each thread: it marks them and wakes one thread that waits for them. So
// each process that others must watch keeps one such word in a page that they
// can map.
//
// This only makes detection faster: processes that cannot map the page (on
// another host, in another container, with an old kernel) still have sockets
// and pidfds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl {

// How others find the page of a process.
struct LifeSign {
  int32_t pid = 0;
  // Its descriptor in that process.
  int32_t fd = -1;
  // Random bytes that are in it: another process may have got the number.
  std::string id;
};

// This process's own. The first call makes the page and a thread that holds the
// word until the process ends. A process that calls exit() withdraws its word
// first, so only a death without warning is noticed. Thread-safe. UNIMPLEMENTED
// or another error when the system does not allow it.
absl::StatusOr<LifeSign> OwnLifeSign();
// Before a process that ends in order calls _exit; exit does it by itself.
void WithdrawLifeSign();

// The word of OwnLifeSign, which has no owner until that is called. For a child
// that is forked before, which has the page, too; see AwaitEnd.
absl::StatusOr<std::atomic<uint32_t>*> MakeOwnWord();
// Waits until the process of that word ends. True: without warning. Only system
// calls.
bool AwaitEnd(std::atomic<uint32_t>& word);

// Watches other processes. Owns a thread. Thread-safe.
class LifeWatch {
 public:
  LifeWatch() = default;
  // No callback runs after this.
  ~LifeWatch();
  LifeWatch(const LifeWatch&) = delete;
  LifeWatch& operator=(const LifeWatch&) = delete;

  // `died` is called once, by the watch's thread, when the process dies without
  // warning. It must not call the watch. NOT_FOUND: there is no such page, so
  // the process has ended or runs elsewhere. RESOURCE_EXHAUSTED: the kernel
  // waits for at most 127 processes at once. Other errors: the page cannot be
  // used. The result is for Remove.
  absl::StatusOr<int64_t> Add(const LifeSign& sign, std::function<void()> died);
  // Waits for a callback that is running. Unknown numbers are ignored.
  void Remove(int64_t number);

 private:
  struct Page;
  struct Watched {
    std::shared_ptr<Page> page;
    std::function<void()> died;
  };

  void Run();
  // Makes the thread look at the list again.
  void Rearm();
  void CallDied();

  // Held while callbacks run; before mu_.
  Mutex calling_;
  Mutex mu_;
  std::map<int64_t, Watched> watched_ ABSL_GUARDED_BY(mu_);
  int64_t next_number_ ABSL_GUARDED_BY(mu_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // A futex that the thread waits for as well; changes with the list.
  std::atomic<uint32_t> changes_{0};
  // Started by the first Add.
  Thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl
