#include "stage.h"

#include <utility>

namespace elasticdl::worker::test {
namespace {

thread_local Actor* current = nullptr;

}  // namespace

Actor::Actor(std::function<void()> body)
    : body_(std::move(body)), thread_([this] { Main(); }) {}

Actor::~Actor() {
  Kill();
  thread_.join();
}

void Actor::Main() {
  current = this;
  {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [this] { return my_turn_; });
  }
  if (!killed_) {
    try {
      body_();
    } catch (const Killed&) {
      // As a process ends: without a word.
    }
  }
  done_ = true;
  const std::lock_guard<std::mutex> lock(mu_);
  my_turn_ = false;
  changed_.notify_all();
}

void Actor::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  my_turn_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !my_turn_; });
}

void Actor::Kill() {
  if (done_) return;
  killed_ = true;
  Run();
}

void Actor::GiveTurnBack() {
  std::unique_lock<std::mutex> lock(mu_);
  my_turn_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return my_turn_; });
}

void Actor::Wait(std::function<bool()> condition) {
  Actor& self = *current;
  // Destructors of a killed actor may come here.
  if (self.killed_) return;
  self.condition_ = std::move(condition);
  self.GiveTurnBack();
  self.condition_ = nullptr;
  if (self.killed_) throw Killed();
}

Actor* Actor::Current() { return current; }

}  // namespace elasticdl::worker::test
