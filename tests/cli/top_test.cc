// The live screen: what it shows, and what keys do.
#include "top/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace elasticdl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json Span(int64_t id, int64_t row, const std::string& state, double begin,
          Json end, const std::string& ended = "") {
  Json span = {{"id", id},     {"row", row},     {"type", "worker"},
               {"member", id}, {"state", state}, {"begin", begin},
               {"end", end}};
  if (!ended.empty()) span["ended"] = ended;
  return span;
}

Json Pod(int64_t id, const std::string& name) {
  return {{"name", name},
          {"id", id},
          {"type", "worker"},
          {"pid", 1000 + id},
          {"state", "Running"},
          {"usage",
           {{"memory_bytes", 250e6},
            {"cpu_cores", 0.9},
            {"records_per_s", 3100},
            {"step_ms", 12.3}}}};
}

Json Update(int pods) {
  Json list = Json::array(), spans = Json::array();
  for (int i = 0; i < pods; ++i) {
    list.push_back(Pod(i, absl::StrCat("elasticdl-worker-j-", i)));
    spans.push_back(Span(i, i, "training", 1100, nullptr));
  }
  return {
      {"all", true},
      {"cursor", 17},
      {"begin", 1000},
      {"now", 1300},
      {"totals", {{"joined", 4}, {"lost", 1}, {"pause_ms", 34}}},
      {"spans", spans},
      {"status",
       {{"job", "mnist"},
        {"state", "running"},
        {"step", 488},
        {"epoch", 1},
        {"num_epochs", 2},
        {"records_done", 52},
        {"records_total", 100},
        {"records_per_s", 12400},
        {"loss", 0.1234},
        {"workers", pods},
        {"target_workers", pods},
        {"generation", 3},
        {"step_time", {{"step_ms", 10}, {"forward_ms", 4}, {"backward_ms", 6}}},
        {"slowest", {{"worker", 1}}},
        {"pods", list}}}};
}

// How wide a line is on the screen.
size_t Width(const std::string& line) {
  size_t width = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(line[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

TEST(RenderTopTest, FitsAnyScreen) {
  TopModel model;
  ASSERT_TRUE(model.Add(Update(30).dump()).ok());
  for (const auto& [columns, rows] : std::vector<std::pair<int, int>>{
           {80, 24}, {40, 10}, {200, 60}, {10, 3}, {1, 1}}) {
    for (const bool color : {false, true}) {
      TopView view;
      view.columns = columns;
      view.rows = rows;
      view.color = color;
      view.footer = "keys";
      const auto lines = RenderTop(model, view);
      EXPECT_EQ(lines.size(), static_cast<size_t>(rows));
      for (const std::string& line : lines) {
        EXPECT_LE(Width(line), static_cast<size_t>(columns)) << line;
      }
    }
  }
}

TEST(RenderTopTest, ShowsWhatMatters) {
  TopModel model;
  Json update = Update(2);
  update["spans"].push_back(Span(7, 1, "training", 1010, 1090, "lost"));
  ASSERT_TRUE(model.Add(update.dump()).ok());
  TopView view;
  view.columns = 100;
  view.footer = "keys";
  const std::string text = absl::StrJoin(RenderTop(model, view), "\n");
  EXPECT_THAT(text, HasSubstr("mnist  running  5:00"));
  EXPECT_THAT(text, HasSubstr(" 52 %"));
  EXPECT_THAT(text, HasSubstr("step 488  epoch 1/2  12.4k records/s"));
  EXPECT_THAT(text, HasSubstr("lost 1  paused 34 ms"));
  EXPECT_THAT(text,
              HasSubstr("step 10 ms: slowest worker 1; forward 40% backward"));
  EXPECT_THAT(text,
              HasSubstr(">0       training      3.1k   12.3 250.0M  0.9"));
  EXPECT_THAT(text, HasSubstr("█"));
  EXPECT_THAT(text, HasSubstr("x"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  view.unicode = false;
  EXPECT_THAT(absl::StrJoin(RenderTop(model, view), "\n"), Not(HasSubstr("█")));
}

TEST(RenderTopTest, LanesTellWhatWorkersDo) {
  TopModel model;
  Json update = Update(3);
  update["spans"] = Json::array();
  const std::vector<std::string> states = {"evaluating", "saving", "silent"};
  for (int64_t i = 0; i < 3; ++i) {
    // The second half of the window; before that, it trains, but for a moment.
    Json before = Span(10 * i, i, "training", 1000, 1270.9);
    Json moment =
        Span(10 * i + 1, i, states[static_cast<size_t>(i)], 1270.9, 1271);
    Json between = Span(10 * i + 2, i, "training", 1271, 1285);
    Json now =
        Span(10 * i + 3, i, states[static_cast<size_t>(i)], 1285, nullptr);
    for (Json* span : {&before, &moment, &between, &now}) {
      (*span)["member"] = i;
      update["spans"].push_back(*span);
    }
  }
  ASSERT_TRUE(model.Add(update.dump()).ok());
  TopView view;
  view.columns = 48 + 30;
  view.window = 30;
  view.unicode = false;
  const std::vector<std::string> lines = RenderTop(model, view);
  const std::string training(15, '#');
  EXPECT_THAT(lines[5], HasSubstr("evaluating"));
  EXPECT_THAT(lines[5], HasSubstr(training + std::string(15, 'e')));
  EXPECT_THAT(lines[6], HasSubstr("saving "));
  EXPECT_THAT(lines[6], HasSubstr(training + std::string(15, 's')));
  EXPECT_THAT(lines[7], HasSubstr("silent "));
  EXPECT_THAT(lines[7], HasSubstr(training + std::string(15, '!')));
  view.unicode = true;
  EXPECT_THAT(RenderTop(model, view)[5], HasSubstr("█▆"));
}

TEST(RenderTopTest, ShowsNoNumbersThatAreNotThere) {
  TopModel model;
  Json update = Update(2);
  Json& status = update["status"];
  status["num_epochs"] = 0;
  status["loss"] = nullptr;
  ASSERT_TRUE(model.Add(update.dump()).ok());
  EXPECT_THAT(absl::StrJoin(RenderTop(model, TopView()), "\n"),
              HasSubstr("step 488  epoch 1  12.4k records/s  workers 2/2"));
  status["step"] = 0;
  status["workers"] = 0;
  TopModel starting;
  ASSERT_TRUE(starting.Add(update.dump()).ok());
  const std::string text = absl::StrJoin(RenderTop(starting, TopView()), "\n");
  EXPECT_THAT(text, HasSubstr("starting workers (they compile or load the "
                              "model)  workers 0/2"));
  EXPECT_THAT(text, Not(HasSubstr("loss ")));
}

TEST(RenderTopTest, NamesCannotMoveTheCursor) {
  TopModel model;
  Json update = Update(1);
  update["status"]["job"] = "evil\x1b[2Jname\n";
  ASSERT_TRUE(model.Add(update.dump()).ok());
  const std::string text = absl::StrJoin(RenderTop(model, TopView()), "\n");
  EXPECT_THAT(text, HasSubstr("evil?[2Jname?"));
  EXPECT_THAT(RenderLog("x", "a\x1b[2J\nb", TopView())[1], HasSubstr("a?[2J"));
}

TEST(TopModelTest, RefusesWhatIsNoAnswer) {
  TopModel model;
  for (const char* text : {"", "[]", "{}", "{\"status\":1}", "nonsense"}) {
    EXPECT_FALSE(model.Add(text).ok()) << text;
  }
  EXPECT_TRUE(model.Add(R"({"status":{},"spans":[1,{}],"totals":3})").ok());
  EXPECT_EQ(model.slowest(), -1);
}

TEST(TopModelTest, AnswersAddUp) {
  TopModel model;
  Json first = Update(1);
  ASSERT_TRUE(model.Add(first.dump()).ok());
  EXPECT_EQ(model.cursor(), 17);
  Json next = Update(1);
  next["all"] = false;
  next["spans"] = Json::array({Span(5, 0, "joining", 1250, nullptr)});
  next["spans"][0]["member"] = 0;
  ASSERT_TRUE(model.Add(next.dump()).ok());
  EXPECT_EQ(model.SpansOf(model.pods()[0]).size(), 2u);
}

TEST(TopEnvironmentTest, ColorsAndBlocksAreAsTheUserWants) {
  EXPECT_TRUE(WantsColor("", "xterm"));
  EXPECT_FALSE(WantsColor("1", "xterm"));
  EXPECT_FALSE(WantsColor("", "dumb"));
  EXPECT_TRUE(HasUtf8("", "", "en_US.UTF-8"));
  EXPECT_TRUE(HasUtf8("", "C.utf8", "C"));
  EXPECT_FALSE(HasUtf8("C", "", "en_US.UTF-8"));
}

// A job that answers from memory.
class FakeJob : public JobHandle {
 public:
  const std::string& name() const override { return name_; }
  absl::StatusOr<std::string> Get(const std::string& what) override {
    asked.push_back(what);
    if (absl::StartsWith(what, "log?")) return std::string("line of the log");
    return Update(3).dump();
  }
  absl::Status Scale(int64_t num_workers, int64_t) override {
    scaled.push_back(num_workers);
    return num_workers > 100 ? absl::InvalidArgumentError("too many")
                             : absl::OkStatus();
  }
  absl::StatusOr<std::string> Stop(const StopRequest&) override { return ""; }
  bool WaitEnd(absl::Duration) override { return ended; }
  JobEnd End() override { return {}; }
  absl::Status Logs(const LogRequest&) override { return absl::OkStatus(); }
  absl::StatusOr<JobPage> OpenPage(int) override { return JobPage(); }

  std::vector<std::string> asked;
  std::vector<int64_t> scaled;
  bool ended = false;

 private:
  const std::string name_ = "mnist";
};

// Types what it was given and remembers every screen.
class FakeTerminal : public Terminal {
 public:
  explicit FakeTerminal(std::deque<int> keys) : keys_(std::move(keys)) {}
  Size size() override { return {80, 24}; }
  void Draw(const std::vector<std::string>& lines) override {
    screens.push_back(absl::StrJoin(lines, "\n"));
  }
  std::optional<int> ReadKey(absl::Duration) override {
    if (keys_.empty()) return kEnd;
    const int key = keys_.front();
    keys_.pop_front();
    return key;
  }
  bool Showed(const std::string& text) const {
    for (const std::string& screen : screens) {
      if (absl::StrContains(screen, text)) return true;
    }
    return false;
  }
  std::vector<std::string> screens;

 private:
  std::deque<int> keys_;
};

class TopTest : public ::testing::Test {
 protected:
  FakeTerminal Press(std::deque<int> keys) {
    FakeTerminal terminal(std::move(keys));
    TopOptions options;
    options.kill = [this](int64_t pid) {
      killed_.push_back(pid);
      return absl::OkStatus();
    };
    EXPECT_TRUE(WatchTop(job_, terminal, options).ok());
    return terminal;
  }
  FakeJob job_;
  std::vector<int64_t> killed_;
};

TEST_F(TopTest, QuitsAndEnds) {
  EXPECT_TRUE(Press({'q'}).Showed("mnist  running"));
  job_.ended = true;
  FakeTerminal terminal({});
  EXPECT_TRUE(WatchTop(job_, terminal, {}).ok());
}

TEST_F(TopTest, Scales) {
  const auto terminal =
      Press({'s', '1', '9', Terminal::kBackspace, '2', Terminal::kEnter, 'q'});
  EXPECT_THAT(job_.scaled, ::testing::ElementsAre(12));
  EXPECT_TRUE(terminal.Showed("number of workers (Enter, Esc): 19_"));
  EXPECT_TRUE(terminal.Showed("scaling to 12 workers"));
}

TEST_F(TopTest, TellsWhyItDidNotScale) {
  EXPECT_TRUE(
      Press({'s', '9', '9', '9', Terminal::kEnter, 'q'}).Showed("too many"));
  EXPECT_TRUE(Press({'s', Terminal::kEnter, 'q'}).Showed("must be at least 1"));
  job_.scaled.clear();
  Press({'s', '5', Terminal::kEscape, 'q'});
  EXPECT_TRUE(job_.scaled.empty());
}

TEST_F(TopTest, KillsOnlyAfterYes) {
  EXPECT_TRUE(Press({'k', 'n', 'q'}).Showed("kill worker 0 (pid 1000)? y/n"));
  EXPECT_TRUE(killed_.empty());
  EXPECT_TRUE(
      Press({Terminal::kDown, 'k', 'y', 'q'}).Showed("killed worker 1"));
  EXPECT_THAT(killed_, ::testing::ElementsAre(1001));
}

TEST_F(TopTest, ShowsALogAndReturns) {
  const auto terminal =
      Press({Terminal::kDown, Terminal::kDown, 'l', 'x', 'q'});
  EXPECT_TRUE(terminal.Showed("log of elasticdl-worker-j-2"));
  EXPECT_TRUE(terminal.Showed("line of the log"));
  EXPECT_THAT(terminal.screens.back(), HasSubstr("q quit"));
  EXPECT_THAT(job_.asked, ::testing::Contains("log?pod=elasticdl-worker-j-2"));
}

}  // namespace
}  // namespace elasticdl::cli
