// Cuts a stream of JSON objects into objects.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace elasticdl::docker {

// Thread-compatible. The engine sends objects one after another, with or
// without line ends between them, cut into pieces anywhere.
class JsonStream {
 public:
  // Feed calls `take` with the text of each object.
  explicit JsonStream(std::function<void(const std::string&)> take);

  // DATA_LOSS: this is not a stream of objects, or one of them is far too long.
  absl::Status Feed(absl::string_view data);
  // Has an object begun and not ended?
  bool inside() const { return depth_ > 0; }

 private:
  absl::Status FeedOne(char c);

  const std::function<void(const std::string&)> take_;
  std::string object_;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace elasticdl::docker
