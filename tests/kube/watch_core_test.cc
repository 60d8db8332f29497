// WatchCore by cases, and against a simulated server that disconnects, forgets
// its history and talks nonsense, in random schedules. A failure prints its
// seed; --gtest_random_seed moves to other schedules.
#include "watch_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace elasticdl::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = WatchEvent::Kind;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

Json Object(const std::string& name, int64_t uid, int64_t version) {
  return {{"metadata",
           {{"name", name},
            {"namespace", "ns"},
            {"uid", absl::StrCat(uid)},
            {"resourceVersion", absl::StrCat(version)}}}};
}

Json List(int64_t version, const std::vector<Json>& items) {
  return {{"metadata", {{"resourceVersion", absl::StrCat(version)}}},
          {"items", items}};
}

std::string Line(const std::string& type, const Json& object) {
  return Json({{"type", type}, {"object", object}}).dump() + "\n";
}

std::string Expired() {
  return Line("ERROR", {{"kind", "Status"},
                        {"code", 410},
                        {"reason", "Expired"},
                        {"message", "too old resource version"}});
}

const char* Word(Kind kind) {
  switch (kind) {
    case Kind::kListed:
      return "listed";
    case Kind::kAdded:
      return "added";
    case Kind::kModified:
      return "modified";
    case Kind::kDeleted:
      return "deleted";
    case Kind::kSynced:
      return "synced";
    case Kind::kTrouble:
      return "trouble";
    case Kind::kRecovered:
      return "recovered";
  }
  return "?";
}

std::vector<std::string> Show(const WatchCore::Events& events) {
  std::vector<std::string> shown;
  for (const WatchEvent& event : events) {
    const std::string name = TextAt(event.object, "/metadata/name");
    shown.push_back(
        absl::StrCat(Word(event.kind), name.empty() ? "" : " ", name));
  }
  return shown;
}

class WatchCoreTest : public ::testing::Test {
 protected:
  // Listed at version 5 with object a.
  void Listed() {
    core_.OnList(List(5, {Object("a", 1, 3)}));
    core_.OnWatchStart(At(0));
  }
  WatchCore core_{WatchCore::Options(), 1};
};

TEST_F(WatchCoreTest, ListsThenWatchesFromThere) {
  EXPECT_EQ(core_.Next().resource_version, "");
  EXPECT_EQ(core_.Next().delay, absl::ZeroDuration());
  EXPECT_THAT(
      Show(core_.OnList(List(5, {Object("a", 1, 3), Object("b", 2, 4)}))),
      ElementsAre("listed a", "listed b", "synced"));
  EXPECT_EQ(core_.Next().resource_version, "5");
  EXPECT_EQ(core_.Next().delay, absl::ZeroDuration());
}

TEST_F(WatchCoreTest, LinesMayBeCutAnywhere) {
  Listed();
  const std::string text = Line("MODIFIED", Object("a", 1, 6)) + "\n" +
                           Line("ADDED", Object("b", 2, 7)) +
                           Line("DELETED", Object("a", 1, 8));
  std::vector<std::string> shown;
  for (const char c : text) {
    for (const std::string& word :
         Show(core_.OnWatchBytes(absl::string_view(&c, 1)))) {
      shown.push_back(word);
    }
  }
  EXPECT_THAT(shown, ElementsAre("modified a", "added b", "deleted a"));
  EXPECT_THAT(Show(core_.OnWatchEnd(absl::OkStatus(), At(1))), IsEmpty());
  EXPECT_EQ(core_.Next().resource_version, "8");
  EXPECT_EQ(core_.Next().delay, absl::ZeroDuration());
}

TEST_F(WatchCoreTest, BookmarkMovesTheVersionOn) {
  Listed();
  EXPECT_THAT(Show(core_.OnWatchBytes(Line(
                  "BOOKMARK", {{"metadata", {{"resourceVersion", "99"}}}}))),
              IsEmpty());
  EXPECT_THAT(
      Show(core_.OnWatchEnd(absl::UnavailableError("connection lost"), At(1))),
      IsEmpty());
  EXPECT_EQ(core_.Next().resource_version, "99");
}

TEST_F(WatchCoreTest, HalfALineIsDroppedWithItsConnection) {
  Listed();
  const std::string line = Line("ADDED", Object("b", 2, 7));
  core_.OnWatchBytes(Line("MODIFIED", Object("a", 1, 6)) + line.substr(0, 20));
  core_.OnWatchEnd(absl::UnavailableError("connection lost"), At(1));
  EXPECT_EQ(core_.Next().resource_version, "6");
  core_.OnWatchStart(At(1));
  EXPECT_THAT(Show(core_.OnWatchBytes(line)), ElementsAre("added b"));
}

TEST_F(WatchCoreTest, GoneAsAnAnswerAndAsAnEvent) {
  for (const bool as_event : {false, true}) {
    SCOPED_TRACE(as_event);
    WatchCore core(WatchCore::Options(), 1);
    core.OnList(List(5, {Object("a", 1, 3), Object("b", 2, 4)}));
    core.OnWatchStart(At(0));
    absl::Status end = absl::OutOfRangeError("too old");
    if (as_event) {
      EXPECT_THAT(Show(core.OnWatchBytes(Expired())), IsEmpty());
      EXPECT_TRUE(core.watch_broken());
      end = absl::CancelledError("ended by its reader");
    }
    EXPECT_THAT(Show(core.OnWatchEnd(end, At(0))), IsEmpty());
    EXPECT_EQ(core.Next().resource_version, "");
    EXPECT_EQ(core.Next().delay, absl::ZeroDuration());
    // What is missing in the new list was deleted; c has come.
    EXPECT_THAT(
        Show(core.OnList(List(9, {Object("b", 2, 4), Object("c", 3, 8)}))),
        ElementsAre("deleted a", "listed b", "listed c", "synced"));
    // Again before anything was seen: not at once any more.
    core.OnWatchStart(At(0));
    core.OnWatchEnd(absl::OutOfRangeError("too old"), At(0));
    EXPECT_EQ(core.Next().resource_version, "");
    EXPECT_GT(core.Next().delay, absl::ZeroDuration());
  }
}

TEST_F(WatchCoreTest, AnotherObjectOfTheSameName) {
  Listed();
  core_.OnWatchEnd(absl::OutOfRangeError("too old"), At(0));
  const WatchCore::Events events = core_.OnList(List(9, {Object("a", 2, 8)}));
  EXPECT_THAT(Show(events), ElementsAre("deleted a", "listed a", "synced"));
  EXPECT_EQ(TextAt(events[0].object, "/metadata/uid"), "1");
  EXPECT_EQ(TextAt(events[1].object, "/metadata/uid"), "2");
}

TEST_F(WatchCoreTest, TroubleIsToldOnceAndRecoveryToo) {
  EXPECT_THAT(Show(core_.OnList(absl::UnavailableError("no route, 3 ms"))),
              ElementsAre("trouble"));
  EXPECT_GT(core_.Next().delay, absl::ZeroDuration());
  EXPECT_THAT(Show(core_.OnList(absl::UnavailableError("no route, 5 ms"))),
              IsEmpty());
  EXPECT_THAT(Show(core_.OnList(absl::PermissionDeniedError("no rights"))),
              ElementsAre("trouble"));
  EXPECT_THAT(Show(core_.OnList(List(5, {}))),
              ElementsAre("recovered", "synced"));
  EXPECT_THAT(Show(core_.OnList(List(5, {}))), ElementsAre("synced"));
}

TEST_F(WatchCoreTest, ServerThatCannotBeReachedIsListedWhenItIsBack) {
  Listed();
  EXPECT_THAT(Show(core_.OnWatchEnd(absl::UnavailableError("refused"), At(0))),
              ElementsAre("trouble"));
  EXPECT_EQ(core_.Next().resource_version, "");
  EXPECT_GT(core_.Next().delay, absl::ZeroDuration());
}

TEST_F(WatchCoreTest, RefusedWatchesDoNotRecoverByLists) {
  Listed();
  const absl::Status refused = absl::PermissionDeniedError("cannot watch");
  EXPECT_THAT(Show(core_.OnWatchEnd(refused, At(0))), ElementsAre("trouble"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Show(core_.OnList(List(6, {Object("a", 1, 3)}))),
                ElementsAre("listed a", "synced"));
    core_.OnWatchStart(At(i));
    EXPECT_THAT(Show(core_.OnWatchEnd(refused, At(i))), IsEmpty());
  }
  core_.OnList(List(6, {}));
  core_.OnWatchStart(At(9));
  EXPECT_THAT(Show(core_.OnWatchBytes(Line("ADDED", Object("b", 2, 7)))),
              ElementsAre("recovered", "added b"));
}

TEST_F(WatchCoreTest, BackoffGrowsToItsMaximumAndIsReset) {
  absl::Duration last;
  for (int i = 0; i < 20; ++i) {
    core_.OnList(absl::UnavailableError("away"));
    last = core_.Next().delay;
    EXPECT_LE(last, WatchCore::Options().backoff.max);
  }
  EXPECT_GE(last, WatchCore::Options().backoff.max * 0.7);
  core_.OnList(List(5, {}));
  core_.OnWatchStart(At(0));
  core_.OnWatchBytes(Line("ADDED", Object("a", 1, 6)));
  core_.OnWatchEnd(absl::OkStatus(), At(1));
  core_.OnWatchStart(At(1));
  core_.OnWatchEnd(absl::OkStatus(), At(1));
  EXPECT_LE(core_.Next().delay, WatchCore::Options().backoff.initial);
}

TEST_F(WatchCoreTest, QuietWatchesAreOpenedAgainAtOnceEmptyOnesAreNot) {
  Listed();
  core_.OnWatchEnd(absl::OkStatus(), At(300));
  EXPECT_EQ(core_.Next().delay, absl::ZeroDuration());
  EXPECT_EQ(core_.Next().resource_version, "5");
  core_.OnWatchStart(At(300));
  core_.OnWatchEnd(absl::OkStatus(), At(300));
  EXPECT_GT(core_.Next().delay, absl::ZeroDuration());
  EXPECT_EQ(core_.Next().resource_version, "5");
}

TEST_F(WatchCoreTest, NonsenseLeadsToANewList) {
  const std::string lines[] = {
      "<html>\n",
      "{}\n",
      "[1]\n",
      "{\"type\":\"ADDED\"}\n",
      "{\"type\":\"ADDED\",\"object\":7}\n",
      "{\"type\":\"ERROR\",\"object\":{}}\n",
      "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"x\"}}\n",
  };
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    WatchCore core(WatchCore::Options(), 1);
    core.OnList(List(5, {}));
    core.OnWatchStart(At(0));
    EXPECT_THAT(core.OnWatchBytes(line + Line("ADDED", Object("b", 2, 7))),
                IsEmpty());
    EXPECT_TRUE(core.watch_broken());
    core.OnWatchEnd(absl::CancelledError("by us"), At(0));
    EXPECT_EQ(core.Next().resource_version, "");
    EXPECT_GT(core.Next().delay, absl::ZeroDuration());
  }
  // A list that is none.
  WatchCore core(WatchCore::Options(), 1);
  EXPECT_THAT(Show(core.OnList(Json("text"))), ElementsAre("trouble"));
}

// A server with a history that it forgets, and a reader that believes the
// events alone.
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed), core_(WatchCore::Options(), seed) {}

  void Run(int steps, bool faults) {
    faults_ = faults;
    for (int i = 0; i < steps; ++i) {
      Mutate();
      Step();
    }
  }

  void CheckLevel() {
    // The last list or watch has brought everything: no mutation since.
    Step();
    Step();
    std::map<std::string, std::string> truth;
    for (const auto& [name, object] : objects_) truth[name] = object.dump();
    EXPECT_EQ(view_, truth);
  }

 private:
  bool Chance(int percent) {
    return random_() % 100 < static_cast<uint64_t>(percent);
  }

  void Mutate() {
    for (uint64_t n = random_() % 4; n > 0; --n) {
      const std::string name = absl::StrCat("p", random_() % 5);
      ++version_;
      std::string type = "ADDED";
      const auto found = objects_.find(name);
      if (found == objects_.end()) {
        objects_[name] = Object(name, ++last_uid_, version_);
      } else if (Chance(50)) {
        type = "MODIFIED";
        found->second["metadata"]["resourceVersion"] = absl::StrCat(version_);
      } else {
        type = "DELETED";
      }
      Json object = objects_[name];
      object["metadata"]["resourceVersion"] = absl::StrCat(version_);
      if (type == "DELETED") objects_.erase(name);
      history_[version_] = Line(type, object);
    }
    if (faults_ && Chance(15)) floor_ = version_;
  }

  void Step() {
    const WatchCore::Step step = core_.Next();
    now_ += step.delay;
    // Neither the server nor the processor is hammered.
    const bool paused = step.delay > absl::ZeroDuration() ||
                        now_ - last_step_ >= WatchCore::Options().healthy_after;
    const bool moved_on = step.resource_version != last_version_;
    idle_steps_ = paused || moved_on ? 0 : idle_steps_ + 1;
    last_step_ = now_;
    last_version_ = step.resource_version;
    EXPECT_LE(idle_steps_, 4) << "steps without pause that brought nothing";
    if (step.resource_version.empty()) {
      DoList();
    } else {
      DoWatch(step.resource_version);
    }
  }

  void DoList() {
    if (faults_ && Chance(20)) {
      Take(core_.OnList(absl::UnavailableError("away")));
      return;
    }
    std::vector<Json> items;
    for (const auto& [name, object] : objects_) items.push_back(object);
    Take(core_.OnList(List(version_, items)));
  }

  void DoWatch(const std::string& from_text) {
    int64_t from = 0;
    ASSERT_TRUE(absl::SimpleAtoi(from_text, &from));
    core_.OnWatchStart(now_);
    if (faults_ && Chance(10)) {
      Take(core_.OnWatchEnd(absl::UnavailableError("refused"), now_));
      return;
    }
    std::string text;
    absl::Status end;
    if (from < floor_) {
      end = absl::OutOfRangeError("too old");
      if (Chance(50)) text = Expired();
    } else {
      text = Stream(from, end);
    }
    Feed(text);
    if (core_.watch_broken()) end = absl::CancelledError("by its reader");
    now_ += absl::Milliseconds(random_() % 20000);
    Take(core_.OnWatchEnd(end, now_));
  }

  // What a watch brings before it ends, and how it ends.
  std::string Stream(int64_t from, absl::Status& end) {
    std::string text;
    // More happens while it is open.
    if (faults_) Mutate();
    for (auto it = history_.upper_bound(from); it != history_.end(); ++it) {
      text += it->second;
      if (faults_ && Chance(3)) text += Expired();
      if (faults_ && Chance(3)) text += "<nonsense>\n";
    }
    if (Chance(20) && version_ > from) {
      text +=
          Line("BOOKMARK",
               {{"metadata", {{"resourceVersion", absl::StrCat(version_)}}}});
    }
    if (faults_ && Chance(40)) {
      end = absl::UnavailableError("connection lost");
      text.resize(random_() % (text.size() + 1));
    }
    return text;
  }

  void Feed(absl::string_view text) {
    while (!text.empty() && !core_.watch_broken()) {
      const size_t size = 1 + random_() % 150;
      Take(core_.OnWatchBytes(text.substr(0, size)));
      text.remove_prefix(std::min(size, text.size()));
    }
  }

  void Take(const WatchCore::Events& events) {
    for (const WatchEvent& event : events) {
      const std::string name = TextAt(event.object, "/metadata/name");
      const std::string uid = TextAt(event.object, "/metadata/uid");
      switch (event.kind) {
        case Kind::kListed:
        case Kind::kAdded:
        case Kind::kModified:
          EXPECT_EQ(gone_.count(uid), 0u) << "came back from the dead";
          EXPECT_TRUE(uid_of_[name].empty() || uid_of_[name] == uid)
              << name << " was replaced and nobody told its end";
          uid_of_[name] = uid;
          view_[name] = event.object.dump();
          idle_steps_ = 0;
          break;
        case Kind::kDeleted:
          EXPECT_EQ(uid_of_[name], uid);
          EXPECT_TRUE(gone_.insert(uid).second) << "died twice";
          uid_of_[name].clear();
          view_.erase(name);
          idle_steps_ = 0;
          break;
        case Kind::kTrouble:
          EXPECT_FALSE(event.error.ok());
          break;
        default:
          break;
      }
    }
  }

  std::mt19937_64 random_;
  WatchCore core_;
  bool faults_ = true;
  absl::Time now_ = absl::UnixEpoch();
  int idle_steps_ = 0;
  absl::Time last_step_;
  std::string last_version_;
  // The server.
  int64_t version_ = 1;
  int64_t floor_ = 0;
  int64_t last_uid_ = 0;
  std::map<std::string, Json> objects_;
  std::map<int64_t, std::string> history_;
  // The reader.
  std::map<std::string, std::string> view_;
  std::map<std::string, std::string> uid_of_;
  std::set<std::string> gone_;
};

TEST(WatchCoreRandomTest, TheViewBecomesTheTruth) {
  const uint64_t first =
      static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) *
      1000003;
  for (int i = 0; i < 800 && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", first + i));
    Simulation simulation(first + i);
    simulation.Run(60, true);
    simulation.Run(3, false);
    simulation.CheckLevel();
  }
}

}  // namespace
}  // namespace elasticdl::kube
