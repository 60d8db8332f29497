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
  // `take` gets the text of each object, from within Feed.
  explicit JsonStream(std::function<void(const std::string&)> take);

  // DATA_LOSS: that is no stream of objects (or one of them is absurdly long).
  absl::Status Feed(absl::string_view data);
  // Is there a beginning without an end?
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
