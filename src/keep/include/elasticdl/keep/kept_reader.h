// Reads what a dead process has left behind (kept_state.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "elasticdl/common/file.h"
#include "elasticdl/keep/kept_state.h"

namespace elasticdl::keep {

// Is this the memory of that worker, which has this pid? It may still run. Any
// descriptor is refused that is not of such a memory, or of one that could
// shrink. DATA_LOSS: it is not.
absl::Status CheckOwner(const Fd& fd, int64_t worker_id, pid_t pid);

// Opens it for reading, without waiting for whatever it may be.
absl::StatusOr<Fd> OpenMemory(const std::string& path);

// Thread-compatible. The owner must have ended: nothing here changes.
class KeptReader {
 public:
  // `fd` is not needed afterwards. NOT_FOUND: there is no whole state in it,
  // and none that can be finished. DATA_LOSS: it is no such memory.
  static absl::StatusOr<KeptReader> Open(const Fd& fd);
  static absl::StatusOr<KeptReader> Open(const std::string& path);
  ~KeptReader();
  KeptReader(KeptReader&& other) noexcept;
  KeptReader& operator=(KeptReader&&) = delete;

  uint64_t layout() const;
  // Of the step that the state is at once the update is finished.
  const Facts& facts() const { return facts_; }

  // In the order in which they were added.
  size_t num_arrays() const;
  absl::Span<const char> array(size_t index) const;

  // An update broke off. Its numbers before `done` are updated, and so may be
  // some of the `torn` after that, whose old values are in the undo array.
  struct Update {
    bool open = false;
    size_t done = 0;
    size_t torn = 0;
  };
  const Update& update() const { return update_; }

 private:
  KeptReader(const char* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}
  const KeptHeader& header() const;
  absl::Status Check();

  const char* begin_;
  size_t bytes_;
  Facts facts_;
  Update update_;
};

}  // namespace elasticdl::keep
