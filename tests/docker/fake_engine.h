// A Docker engine for tests: an HTTP server on a unix socket whose answers the
// test writes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::docker {

// Thread-safe. Serves one connection after the other.
class FakeEngine {
 public:
  struct Request {
    std::string method;
    // With the query.
    std::string target;
    // Names in lower case.
    std::map<std::string, std::string> headers;
    std::string body;
  };
  // Belongs to one request; use it in the handler only.
  class Reply {
   public:
    Reply(int fd, int stop) : fd_(fd), stop_(stop) {}
    // Whole answers, or Begin, several Chunk and End.
    void Send(int code, absl::string_view body,
              const std::string& headers = "");
    void Begin(int code, const std::string& headers = "");
    void Chunk(absl::string_view data);
    void End();
    // Waits until the client has closed the connection (true) or the engine is
    // being destroyed.
    bool WaitForHangup();

   private:
    void Write(absl::string_view data);
    const int fd_;
    const int stop_;
  };
  using Handler = std::function<void(const Request&, Reply&)>;

  // Listens at `socket`. /_ping is answered with `api_version`; all else goes
  // to `handler`, on the engine's thread.
  FakeEngine(const std::string& socket, const std::string& api_version,
             Handler handler);
  ~FakeEngine();

  // All but pings.
  std::vector<Request> requests() const;

 private:
  void Run();
  void Serve(int fd);

  const std::string api_version_;
  const Handler handler_;
  Fd listener_;
  Fd stop_;
  mutable Mutex mu_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  Thread thread_;
};

// All values of `key` in the query of `target`, decoded.
std::vector<std::string> QueryValues(const std::string& target,
                                     const std::string& key);

}  // namespace elasticdl::docker
