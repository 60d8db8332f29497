#include "json_stream.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace elasticdl::docker {
namespace {

// One line of a build's output is one object; the longest ones have some
// kilobytes.
constexpr size_t kMaxObjectBytes = 16 << 20;

}  // namespace

JsonStream::JsonStream(std::function<void(const std::string&)> take)
    : take_(std::move(take)) {}

absl::Status JsonStream::FeedOne(char c) {
  if (depth_ == 0) {
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      return absl::OkStatus();
    }
    if (c != '{') {
      return absl::DataLossError(absl::StrCat(
          "the engine's answer is not JSON: '", absl::string_view(&c, 1), "'"));
    }
  }
  object_.push_back(c);
  if (object_.size() > kMaxObjectBytes) {
    return absl::DataLossError("the engine's answer has an endless object");
  }
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
  }
  if (depth_ == 0) {
    const std::string object = std::move(object_);
    object_.clear();
    take_(object);
  }
  return absl::OkStatus();
}

absl::Status JsonStream::Feed(absl::string_view data) {
  for (const char c : data) {
    if (absl::Status status = FeedOne(c); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::docker
