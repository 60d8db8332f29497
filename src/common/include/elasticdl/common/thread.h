// An owned, named thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace elasticdl {

// Thread-compatible. Joins on destruction; the owner makes the body return
// (Stop, then Join). `name` shows in debuggers and is cut to 15 characters.
class Thread {
 public:
  Thread() = default;
  Thread(std::string name, std::function<void()> body);
  ~Thread() { Join(); }
  Thread(Thread&& other) noexcept = default;
  Thread& operator=(Thread&& other) noexcept;

  // Returns once the body has. Idempotent.
  void Join();

 private:
  std::thread thread_;
};

}  // namespace elasticdl
