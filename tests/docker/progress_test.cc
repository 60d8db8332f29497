// What the user sees of a build and a push.
#include "elasticdl/docker/progress.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace elasticdl::docker {
namespace {

std::string Show(bool terminal, const std::vector<Progress>& all) {
  std::string out;
  ProgressDisplay display(
      terminal, [&](absl::string_view text) { absl::StrAppend(&out, text); });
  for (const Progress& one : all) display.Show(one);
  return out;
}

Progress Text(const std::string& text) {
  Progress progress;
  progress.text = text;
  return progress;
}

Progress Layer(const std::string& id, const std::string& status,
               int64_t current = 0, int64_t total = 0) {
  Progress progress;
  progress.id = id;
  progress.status = status;
  progress.current = current;
  progress.total = total;
  return progress;
}

TEST(ProgressTest, BuildOutputIsShownAsItIs) {
  EXPECT_EQ(Show(false, {Text("Step 1/2 : FROM a\n"), Text(" ---> 12"),
                         Text("\n"), Progress()}),
            "Step 1/2 : FROM a\n ---> 12\n");
}

TEST(ProgressTest, ColoursAreForTerminals) {
  const std::vector<Progress> all = {Text("\x1b[91mwarning\n\x1b[0m"),
                                     Text("\x1b[1;3")};
  EXPECT_EQ(Show(false, all), "warning\n");
  EXPECT_EQ(Show(true, all), "\x1b[91mwarning\n\x1b[0m\x1b[1;3");
}

TEST(ProgressTest, PipeGetsALineForEachChange) {
  EXPECT_EQ(Show(false, {Layer("a", "Preparing"), Layer("b", "Preparing"),
                         Layer("a", "Pushing", 1, 10),
                         Layer("a", "Pushing", 5, 10), Layer("b", "Pushed"),
                         Layer("a", "Pushed"), Layer("", "1: digest: sha")}),
            "a: Preparing\nb: Preparing\na: Pushing\nb: Pushed\na: Pushed\n"
            "1: digest: sha\n");
}

TEST(ProgressTest, TerminalRedrawsTheLayersLine) {
  EXPECT_EQ(Show(true, {Layer("a", "Preparing"), Layer("b", "Waiting"),
                        Layer("a", "Pushed"), Layer("b", "Pushed")}),
            "a: Preparing\nb: Waiting\n"
            "\x1b[2A\x1b[2K\ra: Pushed\r\x1b[2B"
            "\x1b[1A\x1b[2K\rb: Pushed\r\x1b[1B");
}

TEST(ProgressTest, TextAfterLayersStartsAnew) {
  EXPECT_EQ(
      Show(true, {Layer("a", "Pulling"), Text("done\n"), Layer("a", "Pulled")}),
      "a: Pulling\ndone\na: Pulled\n");
}

TEST(ProgressTest, StatusAfterHalfALine) {
  EXPECT_EQ(Show(false, {Text("half"), Layer("", "Pulling from x")}),
            "half\nPulling from x\n");
  EXPECT_EQ(Show(false, {Text("half"), Layer("a", "Waiting")}),
            "half\na: Waiting\n");
}

TEST(ProgressTest, Numbers) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(999), "999 B");
  EXPECT_EQ(FormatSize(1000), "1.0 kB");
  EXPECT_EQ(FormatSize(12'340'000), "12.3 MB");
  EXPECT_EQ(FormatTransfer(5'000, 0), "5.0 kB");
  EXPECT_EQ(FormatTransfer(0, 100),
            "[>" + std::string(27, ' ') + "] 0 B / 100 B");
  EXPECT_EQ(FormatTransfer(50, 100), "[" + std::string(14, '=') + ">" +
                                         std::string(13, ' ') +
                                         "] 50 B / 100 B");
  // The engine's estimate may be too small.
  EXPECT_EQ(FormatTransfer(200, 100),
            "[" + std::string(28, '=') + "] 200 B / 100 B");
}

}  // namespace
}  // namespace elasticdl::docker
