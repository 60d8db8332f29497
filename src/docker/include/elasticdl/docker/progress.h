// The engine's progress messages, and how they are shown.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl::docker {

// One message of the engine; missing fields are empty.
struct Progress {
  // Output of a build: its steps and what their commands print.
  std::string text;
  // State of something that has an id (a layer: "Pushing"), or of the whole.
  std::string status;
  std::string id;
  // Bytes; total 0 = unknown.
  int64_t current = 0;
  int64_t total = 0;
};

using ProgressCallback = std::function<void(const Progress&)>;

// Thread-compatible. Writes progress as text. On a terminal each layer has one
// line, which is redrawn; elsewhere a line for each change of a layer's status,
// and no counting.
class ProgressDisplay {
 public:
  using Write = std::function<void(absl::string_view)>;
  // `write` gets the text to show, control sequences included if `terminal`.
  ProgressDisplay(bool terminal, Write write);

  void Show(const Progress& progress);

 private:
  void ShowLayer(const Progress& progress);
  void Redraw(int line, absl::string_view text);

  const bool terminal_;
  const Write write_;
  // Of the layers on the screen: the line, counted from the first one.
  std::map<std::string, int> lines_;
  // Status that was last shown, by layer.
  std::map<std::string, std::string> shown_;
  bool at_line_start_ = true;
};

// "[====>     ] 12.3 MB / 45.6 MB"; "12.3 MB" when the total is unknown.
std::string FormatTransfer(int64_t current, int64_t total);
// "12.3 MB".
std::string FormatSize(int64_t bytes);

}  // namespace elasticdl::docker
