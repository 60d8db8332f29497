#include "elasticdl/common/life_sign.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/swift.h"

namespace elasticdl {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kPageBytes = 4096;
// FUTEX_WAITV_MAX, less the word that makes the thread look again.
constexpr size_t kMostWatched = 127;

// The number of no thread: a page that was made for a process that has not
// taken it yet.
constexpr uint32_t kNotTaken = FUTEX_TID_MASK;

// What both sides map.
struct SharedPage {
  std::array<char, kIdBytes> id;
  // The thread that holds it, 0 once the process has withdrawn it. The kernel
  // adds FUTEX_OWNER_DIED.
  std::atomic<uint32_t> word;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free,
              "a futex is a plain word");

void WakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX,
          nullptr, nullptr, 0);
}

absl::StatusOr<SharedPage*> MapPage(int fd) {
  void* base =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return ErrnoToStatus(errno, "map a life sign");
  return static_cast<SharedPage*>(base);
}

absl::StatusOr<Fd> MakePage() {
  Fd fd(memfd_create("elasticdl-life", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoToStatus(errno, "make a life sign");
  if (ftruncate(fd.get(), kPageBytes) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoToStatus(errno, "set the size of a life sign");
  }
  return fd;
}

// Only a page that nobody can cut may be mapped: reading beyond the end of a
// file is a SIGBUS.
bool IsWholePage(int fd) {
  struct stat file;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &file) == 0 &&
         file.st_size >= static_cast<off_t>(kPageBytes);
}

// The page of this process and the thread that holds its word. Never destroyed:
// both live as long as the process.
class OwnPage {
 public:
  static absl::StatusOr<OwnPage*> Make(Fd fd, SharedPage* page);
  const LifeSign& sign() const { return sign_; }
  void Withdraw() {
    page_->word.store(0);
    WakeAll(page_->word);
  }

 private:
  OwnPage(Fd fd, SharedPage* page)
      : fd_(std::move(fd)),
        page_(page),
        sign_{getpid(), fd_.get(), RandomBytes(kIdBytes)} {
    std::memcpy(page->id.data(), sign_.id.data(), kIdBytes);
  }
  // The body of the thread. Sets `held` to 0 or to an error number.
  void Hold(std::promise<int> held);

  const Fd fd_;
  SharedPage* const page_;
  const LifeSign sign_;
  robust_list_head head_ = {};
  robust_list node_ = {};
};

absl::StatusOr<OwnPage*> OwnPage::Make(Fd fd, SharedPage* page) {
  auto* const own = new OwnPage(std::move(fd), page);
  std::promise<int> promise;
  std::future<int> held = promise.get_future();
  try {
    std::thread([own, promise = std::move(promise)]() mutable {
      own->Hold(std::move(promise));
    }).detach();
  } catch (const std::system_error& error) {
    // Too many threads: the job does without.
    return absl::ResourceExhaustedError(error.what());
  }
  const int error = held.get();
  if (error != 0) return ErrnoToStatus(error, "register a robust list");
  return own;
}

void OwnPage::Hold(std::promise<int> held) {
  // Signals are for other threads: a handler here could take a robust mutex.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), "edl-life");
  // It must run once more to die, and others wait for that.
  BeSwift();
  // The thread's robust list becomes ours. The C library uses it for robust
  // mutexes only, and this thread takes none. The kernel finds the word at a
  // fixed distance from the node, which therefore need not be in shared memory,
  // where others could damage it.
  node_.next = &head_.list;
  head_.list.next = &node_;
  head_.futex_offset = static_cast<long>(  // NOLINT(google-runtime-int): ABI
      reinterpret_cast<intptr_t>(&page_->word) -
      reinterpret_cast<intptr_t>(&node_));
  const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  page_->word.store(thread);
  if (syscall(SYS_set_robust_list, &head_, sizeof(head_)) != 0) {
    const int error = errno;
    Withdraw();
    held.set_value(error);
    return;
  }
  // For a child that waits for it already.
  WakeAll(page_->word);
  held.set_value(0);
  // Until the process ends.
  while (true) pause();
}

// Made before it is owned.
struct FreePage {
  Fd fd;
  SharedPage* page;
};

absl::StatusOr<FreePage*> MakeFreePage() {
  ELASTICDL_ASSIGN_OR_RETURN(Fd fd, MakePage());
  ELASTICDL_ASSIGN_OR_RETURN(SharedPage* const page, MapPage(fd.get()));
  return new FreePage{std::move(fd), page};
}

Mutex own_mu;
OwnPage* own ABSL_GUARDED_BY(own_mu) = nullptr;
// Until OwnPage has it.
FreePage* free_page ABSL_GUARDED_BY(own_mu) = nullptr;

}  // namespace

void WithdrawLifeSign() {
  MutexLock lock(own_mu);
  if (own != nullptr && own->sign().pid == getpid()) own->Withdraw();
}

absl::StatusOr<LifeSign> OwnLifeSign() {
  MutexLock lock(own_mu);
  // A forked child has the parent's page, but not its thread.
  if (own == nullptr || own->sign().pid != getpid()) {
    FreePage* made = std::exchange(free_page, nullptr);
    if (made == nullptr) {
      ELASTICDL_ASSIGN_OR_RETURN(made, MakeFreePage());
    }
    const std::unique_ptr<FreePage> page(made);
    ELASTICDL_ASSIGN_OR_RETURN(own,
                               OwnPage::Make(std::move(page->fd), page->page));
    // The last words of a process that ends in order may still be under way;
    // its death must not overtake them.
    std::atexit(WithdrawLifeSign);
  }
  return own->sign();
}

absl::StatusOr<std::atomic<uint32_t>*> MakeOwnWord() {
  MutexLock lock(own_mu);
  if (own != nullptr || free_page != nullptr) {
    return absl::FailedPreconditionError("there is a life sign already");
  }
  ELASTICDL_ASSIGN_OR_RETURN(free_page, MakeFreePage());
  free_page->page->word.store(kNotTaken);
  return &free_page->page->word;
}

bool AwaitEnd(std::atomic<uint32_t>& word) {
  while (true) {
    uint32_t value = word.load();
    if (value == 0) return false;
    if ((value & FUTEX_OWNER_DIED) != 0) {
      // The kernel wakes only one of those who wait.
      WakeAll(word);
      return true;
    }
    // Without this bit it would wake nobody.
    if ((value & FUTEX_WAITERS) == 0 &&
        !word.compare_exchange_strong(value, value | FUTEX_WAITERS)) {
      continue;
    }
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT,
            value | FUTEX_WAITERS, nullptr, nullptr, 0);
  }
}

// Another process's page.
struct LifeWatch::Page {
  explicit Page(SharedPage* shared) : shared(shared) {}
  ~Page() { munmap(shared, kPageBytes); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  static absl::StatusOr<std::shared_ptr<Page>> Open(const LifeSign& sign);
  std::atomic<uint32_t>& word() { return shared->word; }

  SharedPage* const shared;
};

absl::StatusOr<std::shared_ptr<LifeWatch::Page>> LifeWatch::Page::Open(
    const LifeSign& sign) {
  const std::string path = absl::StrCat("/proc/", sign.pid, "/fd/", sign.fd);
  const absl::Status other =
      absl::NotFoundError(absl::StrCat(path, " is not the life sign"));
  // The number may be of anything by now, and opening a device may have
  // effects: first look, then open.
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return ErrnoToStatus(errno, path);
  if (!S_ISREG(file.st_mode) || sign.id.size() != kIdBytes) return other;
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return ErrnoToStatus(errno, path);
  if (!IsWholePage(fd.get())) return other;
  ELASTICDL_ASSIGN_OR_RETURN(SharedPage* const shared, MapPage(fd.get()));
  auto page = std::make_shared<Page>(shared);
  if (std::memcmp(shared->id.data(), sign.id.data(), kIdBytes) != 0) {
    return other;
  }
  return page;
}

LifeWatch::~LifeWatch() {
  Thread thread;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  Rearm();
  thread.Join();
}

void LifeWatch::Rearm() {
  ++changes_;
  WakeAll(changes_);
}

absl::StatusOr<int64_t> LifeWatch::Add(const LifeSign& sign,
                                       std::function<void()> died) {
  ELASTICDL_ASSIGN_OR_RETURN(std::shared_ptr<Page> page, Page::Open(sign));
  int64_t number = 0;
  {
    MutexLock lock(mu_);
    if (watched_.size() >= kMostWatched) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMostWatched, " processes are watched already"));
    }
    if (next_number_ == 1) {
      try {
        thread_ = Thread("edl-lifewatch", [this] { Run(); });
      } catch (const std::system_error& error) {
        return absl::ResourceExhaustedError(error.what());
      }
    }
    number = next_number_++;
    watched_[number] = {std::move(page), std::move(died)};
  }
  Rearm();
  return number;
}

void LifeWatch::Remove(int64_t number) {
  {
    MutexLock calling(calling_);
    MutexLock lock(mu_);
    if (watched_.erase(number) == 0) return;
  }
  // Until the thread looks at the list again it waits for the word, and would
  // take the kernel's only wake-up away from others.
  Rearm();
}

void LifeWatch::Run() {
  BeSwift();
  std::vector<std::shared_ptr<Page>> pages;
  while (true) {
    // The kernel wakes only one of those who wait. It may have been this one,
    // even if it does not watch the process any more.
    for (const std::shared_ptr<Page>& page : pages) {
      if ((page->word().load() & FUTEX_OWNER_DIED) != 0) WakeAll(page->word());
    }
    pages.clear();
    const uint32_t changes = changes_.load();
    std::vector<futex_waitv> words;
    const auto wait_for = [&words](std::atomic<uint32_t>& word,
                                   uint32_t value) {
      futex_waitv entry = {};
      entry.val = value;
      entry.uaddr = reinterpret_cast<uintptr_t>(&word);
      entry.flags = FUTEX_32;
      words.push_back(entry);
    };
    wait_for(changes_, changes);
    bool dead = false;
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      for (auto it = watched_.begin(); it != watched_.end();) {
        std::atomic<uint32_t>& word = it->second.page->word();
        // Without this bit the kernel would wake nobody.
        uint32_t value = word.load();
        while (value != 0 &&
               (value & (FUTEX_OWNER_DIED | FUTEX_WAITERS)) == 0 &&
               !word.compare_exchange_weak(value, value | FUTEX_WAITERS)) {
        }
        if (value == 0) {
          // It withdrew its word.
          it = watched_.erase(it);
          continue;
        }
        dead |= (value & FUTEX_OWNER_DIED) != 0;
        wait_for(word, value | FUTEX_WAITERS);
        pages.push_back(it->second.page);
        ++it;
      }
    }
    if (dead) {
      CallDied();
      continue;
    }
    const auto woken = syscall(SYS_futex_waitv, words.data(), words.size(), 0,
                               nullptr, CLOCK_MONOTONIC);
    if (woken < 0 && errno != EAGAIN && errno != EINTR) {
      // An old kernel, or a container that forbids the call.
      LogInfo(
          "deaths of processes are noticed by their sockets only: "
          "futex_waitv: ",
          std::strerror(errno));
      return;
    }
  }
}

void LifeWatch::CallDied() {
  MutexLock calling(calling_);
  std::vector<Watched> dead;
  {
    MutexLock lock(mu_);
    for (auto it = watched_.begin(); it != watched_.end();) {
      if ((it->second.page->word().load() & FUTEX_OWNER_DIED) == 0) {
        ++it;
        continue;
      }
      dead.push_back(std::move(it->second));
      it = watched_.erase(it);
    }
  }
  for (const Watched& watched : dead) watched.died();
}

}  // namespace elasticdl
