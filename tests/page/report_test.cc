// The files of the page, and the page as one file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "elasticdl/page/files.h"

namespace elasticdl::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t i = text.find(word); i != std::string::npos;
       i = text.find(word, i + 1)) {
    ++count;
  }
  return count;
}

TEST(PageFilesTest, NothingIsInTheMarkupThatThePolicyRefuses) {
  const std::string html(Html().text);
  EXPECT_THAT(html, Not(HasSubstr("style=")));
  EXPECT_THAT(html, Not(HasSubstr("onclick")));
  EXPECT_EQ(CountOf(html, "<script"), 1);
  EXPECT_THAT(html, HasSubstr("<script src=\"page.js\"></script>"));
  EXPECT_THAT(html, HasSubstr("<link rel=\"stylesheet\" href=\"page.css\">"));
  // The only address is the name of SVG.
  EXPECT_EQ(CountOf(html, "http"), CountOf(html, "http://www.w3.org"));
}

TEST(PageFilesTest, TextOfTheJobIsNeverMarkup) {
  const std::string script(Script().text);
  for (const char* word : {"innerHTML", "outerHTML", "insertAdjacentHTML",
                           "document.write", "eval(", "new Function"}) {
    EXPECT_THAT(script, Not(HasSubstr(word)));
  }
}

TEST(ReportTest, HoldsTheDataAndAPolicyForItsOwnScriptOnly) {
  const std::string report = Report(R"({"job":"j"})");
  EXPECT_THAT(report, HasSubstr(R"(id="data">{"job":"j"}</script>)"));
  EXPECT_THAT(report, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(report, HasSubstr("default-src 'none'"));
  EXPECT_THAT(report, Not(HasSubstr("unsafe")));
  EXPECT_THAT(report, Not(HasSubstr("page.js")));
  EXPECT_THAT(report, Not(HasSubstr("page.css")));
}

TEST(ReportTest, DataCannotEndItsElement) {
  const std::string report =
      Report(R"({"job":"</script><script>alert(1)</script><!--"})");
  EXPECT_EQ(CountOf(report, "</script>"), 2);
  EXPECT_THAT(report, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(report, HasSubstr("\\u003c/script>"));
}

}  // namespace
}  // namespace elasticdl::page
