// The files of the page, for serving and for reports.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace elasticdl::page {

struct File {
  absl::string_view path;  // "/page.js"
  absl::string_view type;
  absl::string_view text;
  absl::string_view sha256;  // hexadecimal
};

// page.html, page.css, page.js.
const File& Html();
const File& Style();
const File& Script();

// The page as one file that asks nobody for anything. `data` is an answer of
// /api/v1/update. Scripts other than the page's own do not run in it.
std::string Report(absl::string_view data);

}  // namespace elasticdl::page
