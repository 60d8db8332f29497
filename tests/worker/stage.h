// Threads that take turns: one runs at a time, and a test decides which. Code
// that blocks can so be run through any order of events, the same one for the
// same seed.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace elasticdl::worker::test {

// Thrown where an actor waits when its process is killed.
struct Killed {};

// One thread. All functions but Wait are for the thread that directs.
class Actor {
 public:
  // `body` runs when the director says so.
  explicit Actor(std::function<void()> body);
  // Kills what still runs.
  ~Actor();
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  bool done() const { return done_; }
  // It can go on: what it waits for is there.
  bool ready() const { return !done_ && (!condition_ || condition_()); }
  // Until it waits, or ends.
  void Run();
  // It unwinds and ends.
  void Kill();
  bool killed() const { return killed_; }

  // On an actor's own thread: gives the turn back until `condition`, which is
  // looked at by the director. Throws Killed.
  static void Wait(std::function<bool()> condition);
  // The actor whose thread this is; null = the director's.
  static Actor* Current();

 private:
  void Main();
  void GiveTurnBack();

  const std::function<void()> body_;
  std::function<bool()> condition_;
  bool done_ = false;
  bool killed_ = false;

  std::mutex mu_;
  std::condition_variable changed_;
  bool my_turn_ = false;
  std::thread thread_;
};

}  // namespace elasticdl::worker::test
