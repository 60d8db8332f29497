// Detects when the user's code does not return. A worker whose model hangs
// keeps its stream alive, so it must report itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::elastic {

// Thread-safe. There is one watch at a time.
class Watchdog {
 public:
  // `where` as given to Watch, and for how long.
  using Report =
      std::function<void(const std::string& where, absl::Duration age)>;

  // `report` is called on the watchdog's own thread, once for each watch that
  // takes longer than `limit`. A limit of zero or less: never.
  Watchdog(absl::Duration limit, Report report);
  ~Watchdog();

  // Watches the code that runs while it exists. Cheap enough for every step.
  class Watch {
   public:
    // `where` must outlive the watch. A null watchdog watches nothing.
    Watch(Watchdog* watchdog, const char* where, int64_t step = -1);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Watchdog* const watchdog_;
  };

 private:
  void Run();

  const absl::Duration limit_;
  const Report report_;
  Mutex mu_;
  CondVar wake_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // Null: nothing is watched.
  const char* where_ ABSL_GUARDED_BY(mu_) = nullptr;
  int64_t step_ ABSL_GUARDED_BY(mu_) = -1;
  absl::Time since_ ABSL_GUARDED_BY(mu_);
  bool reported_ ABSL_GUARDED_BY(mu_) = false;
  Thread thread_;
};

}  // namespace elasticdl::elastic
