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
// ?token=<token>, since links hold no headers and a Kubernetes API server,
// which is between the client and a master in a pod, passes that header not on.
// One without it gets 401 and is logged, without its query. Only the files of
// the page and the probes, which hold nothing of the job, need none.
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

// How many of each are asked for; what is not set stays.
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
  };
  // Called on a thread of the server; must be thread-safe and quick.
  struct Commands {
    std::function<absl::Status()> stop;
    std::function<absl::Status(const ScaleRequest& request)> scale;
    // The end of a pod's log. NOT_FOUND: there is none here.
    std::function<absl::StatusOr<std::string>(const std::string& pod)> log;
  };

  // So many pages may follow the stream at a time; others are told to ask
  // now and then.
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

  // Waits until all streams have told how the job ended, and for two seconds if
  // somebody asked within the last three (a page or `elasticdl top`, which ask
  // every second), so that they see it, too; two seconds at most.
  void ShowEnd();

  // Waits for requests in progress (about two seconds at most). Close the board
  // first, or streams hold it up. Idempotent.
  void Stop();

 private:
  class Server;
  explicit HttpStatus(std::unique_ptr<Server> server);
  const std::unique_ptr<Server> server_;
};

}  // namespace elasticdl::master
