// The page as one file.
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "elasticdl/page/files.h"

namespace elasticdl::page {
namespace {

// As a Content-Security-Policy wants it.
std::string Hash(const File& file) {
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::HexStringToBytes(std::string(file.sha256))),
      "'");
}

}  // namespace

std::string Report(absl::string_view data) {
  const std::string policy = absl::StrCat(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; img-src data:; style-src ",
      Hash(Style()), "; script-src ", Hash(Script()), "\">");
  // No text in the data can end the element: in JSON, "<" is also "\u003c".
  const std::string safe = absl::StrReplaceAll(data, {{"<", "\\u003c"}});
  const std::string scripts =
      absl::StrCat("<script type=\"application/json\" id=\"data\">", safe,
                   "</script>\n<script>", Script().text, "</script>");
  return absl::StrReplaceAll(
      Html().text, {{"<meta name=\"policy\">", policy},
                    {"<link rel=\"stylesheet\" href=\"page.css\">",
                     absl::StrCat("<style>", Style().text, "</style>")},
                    {"<script src=\"page.js\"></script>", scripts}});
}

}  // namespace elasticdl::page
