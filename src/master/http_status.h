// The master's status page, JSON API and Prometheus metrics.
//
//   GET  /                   the page; ?token=… instead of the header
//   GET  /page.css, /page.js its files
//   GET  /api/v1/status      JobStatus as JSON
//   GET  /api/v1/update      status and history; ?since=CURSOR: what is new
//   GET  /api/v1/stream      the same as server-sent events, as it happens
//   GET  /api/v1/log?pod=POD the end of its log, as text
//   GET  /metrics            Prometheus text
//   GET  /healthz, /readyz   for probes: 200, or 503 and why
//   POST /api/v1/stop
//   POST /api/v1/scale?num_workers=N&num_ps_pods=M (one of them, or both)
//
// docs/api.md has the fields. /api/status, /api/stop, /api/scale and
// /api/history ([[seconds, step, loss, records_per_s], …]) are old names.
//
// Every request needs the job's token: "Authorization: Bearer <token>", or
// ?token=<token>, because links have no headers and a Kubernetes API server,
// which is between the client and a master in a pod, does not pass that header
// on. A request without the token gets 401 and is logged, without its query.
// Only the files of the page and the probes, which contain no data of the job,
// need none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "status_board.h"

namespace elasticdl::master {

// JSON and Prometheus text of a status. Pure.
std::string StatusToJson(const JobStatus& status, bool evaluations = true);
std::string HistoryToJson(const std::vector<StatusPoint>& points);
std::string StatusToMetrics(const JobStatus& status);

// The requested numbers; those that are not set do not change.
struct ScaleRequest {
  std::optional<int64_t> num_workers;
  std::optional<int64_t> num_servers;
};

// Thread-safe.
class HttpStatus {
 public:
  struct Options {
    // Where to listen: by default only this machine can connect.
    std::string host = "127.0.0.1";
    // 0 = any free port.
    int port = 0;
    // Must not be empty.
    std::string token;
    // Another socket of this user reserves the port (SO_REUSEPORT).
    bool reserved_port = false;
  };
  // Called on a thread of the server; must be thread-safe and quick.
  struct Commands {
    std::function<absl::Status()> stop;
    std::function<absl::Status(const ScaleRequest& request)> scale;
    // The end of a pod's log. NOT_FOUND: there is none here.
    std::function<absl::StatusOr<std::string>(const std::string& pod)> log;
  };

  // Maximum number of pages that follow the stream; further pages must poll.
  static constexpr int kMaxViewers = 4;

  // Listens. `board` must outlive the server. UNAVAILABLE when the address
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpStatus>> Start(
      Options options, const StatusBoard& board, Commands commands);

  ~HttpStatus();

  // host:port.
  std::string address() const;
  // http://host:port/?token=…, to show to the user. Holds the secret.
  std::string page_url() const;

  // A kubelet that asked /healthz has had no good answer for so long that it is
  // about to restart the container: the loop hangs, or the port is overrun.
  bool ProbesFail(absl::Time now) const;

  // Waits until all streams have sent how the job ended, and two seconds if
  // there was a request within the last three (from a page or `elasticdl top`,
  // which poll every second), so that they get it, too. Waits two seconds at
  // most.
  void ShowEnd();

  // Waits for requests in progress (about two seconds at most). Close the board
  // first; otherwise open streams delay it. Idempotent.
  void Stop();

 private:
  class Server;
  explicit HttpStatus(std::unique_ptr<Server> server);
  const std::unique_ptr<Server> server_;
};

}  // namespace elasticdl::master
