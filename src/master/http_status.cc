#include "http_status.h"

#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bounded_http.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/log_limit.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/page/files.h"

namespace elasticdl::master {
namespace {

constexpr char kJson[] = "application/json";
// A page asks every second: who asked within this time is still there, and asks
// again within that.
constexpr absl::Duration kLooking = absl::Seconds(3);
constexpr absl::Duration kLastLook = absl::Seconds(2);
// A browser opens about six connections; each holds a thread while it lasts,
// and so does a stream.
constexpr size_t kThreads = 8 + HttpStatus::kMaxViewers;
// A stream sends when something happens, or the numbers after this time; never
// more often than twice a second.
constexpr absl::Duration kStreamPeriod = absl::Seconds(1);
constexpr absl::Duration kStreamSpacing = absl::Milliseconds(500);
// The longest that a message of a stream may take, and how much of it is
// written at a time.
constexpr absl::Duration kMessageTime = absl::Seconds(10);
constexpr size_t kPiece = 64 << 10;
// The master's loop publishes five times a second. One that has not for this
// long hangs; a machine that is merely busy is not that slow.
constexpr absl::Duration kHanging = absl::Seconds(60);
// The third of three probes 20 s apart has failed (AddProbes of src/cluster);
// while all is well an answer is 20 s old at most.
constexpr absl::Duration kProbesFail = absl::Seconds(50);

void ReplyError(httplib::Response& response, int code,
                absl::string_view message) {
  response.status = code;
  const nlohmann::json body = {{"error", std::string(message)}};
  response.set_content(JsonText(body), kJson);
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

void Reply(httplib::Response& response, const absl::Status& status) {
  if (status.ok()) {
    response.set_content("{\"ok\":true}", kJson);
  } else {
    ReplyError(response, HttpCode(status), status.message());
  }
}

}  // namespace

// Owns the httplib server and the thread that accepts.
class HttpStatus::Server {
 public:
  Server(Options options, const StatusBoard& board, Commands commands)
      : options_(std::move(options)),
        board_(board),
        commands_(std::move(commands)) {
    Configure();
    AddRoutes();
  }

  absl::Status Listen() {
    port_ = options_.port == 0 ? http_.bind_to_any_port(options_.host)
            : http_.bind_to_port(options_.host, options_.port) ? options_.port
                                                               : -1;
    if (port_ < 0) {
      return absl::UnavailableError(absl::StrCat(
          "status page: cannot listen on ", options_.host, ":", options_.port));
    }
    thread_ = Thread("http", [this] {
      http_.listen_after_bind();
      SetListening();  // also when it failed at once: nobody waits for ever
    });
    MutexLock lock(mu_);
    while (!listening_) changed_.Wait(mu_);
    return absl::OkStatus();
  }

  void ShowEnd() {
    MutexLock lock(mu_);
    absl::Time now = Clock::Real().Now();
    // How many ask is not known: all of them get the time for a last look.
    const bool asked = now - last_look_ <= kLooking;
    const absl::Time deadline = now + kLastLook;
    while ((asked || viewers_ > 0) && now < deadline) {
      changed_.WaitFor(mu_, deadline - now);
      now = Clock::Real().Now();
    }
  }

  bool ProbesFail(absl::Time now) const {
    MutexLock lock(mu_);
    return healthy_at_.has_value() && now - *healthy_at_ > kProbesFail;
  }

  void Stop() {
    MutexLock lock(stop_mu_);
    http_.stop();
    thread_.Join();
  }

  std::string address() const {
    const bool v6 = absl::StrContains(options_.host, ':');
    return absl::StrCat(v6 ? "[" : "", options_.host, v6 ? "]:" : ":", port_);
  }
  std::string page_url() const {
    return absl::StrCat("http://", address(), "/?token=", options_.token);
  }

 private:
  void Configure() {
    // The factory is called once the server accepts: only then does stop()
    // have an effect.
    http_.new_task_queue = [this, pool = http_.new_task_queue] {
      SetListening();
      return pool();
    };
    // The default would let a second master share the port.
    http_.set_socket_options(
        [reserved = options_.reserved_port](socket_t socket) {
          const int yes = 1;
          setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
          if (reserved) {
            setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
          }
        });
    http_.set_payload_max_length(4096);
    http_.set_write_timeout(2);
    http_.set_default_headers(
        {{"Cache-Control", "no-store"},
         {"Referrer-Policy", "no-referrer"},
         {"X-Content-Type-Options", "nosniff"},
         {"Content-Security-Policy",
          "default-src 'none'; img-src data:; style-src 'self'; "
          "script-src 'self'; connect-src 'self'; base-uri 'none'; "
          "form-action 'none'; frame-ancestors 'none'"}});
    http_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          if (Allowed(request)) {
            return httplib::Server::HandlerResponse::Unhandled;
          }
          if (const auto others = refusals_.Allow(Clock::Real().Now())) {
            LogWarning("status page: ", request.method, " ",
                       absl::CHexEscape(request.path.substr(0, 100)), " from ",
                       request.remote_addr, " refused: no valid token",
                       LogLimit::Describe(*others));
          }
          response.set_header("WWW-Authenticate", "Bearer");
          ReplyError(response, 401, "the job's token is missing or wrong");
          return httplib::Server::HandlerResponse::Handled;
        });
    http_.set_exception_handler([](const httplib::Request&,
                                   httplib::Response& response,
                                   const std::exception_ptr&) {
      ReplyError(response, 500, "internal error");
    });
  }

  bool Allowed(const httplib::Request& request) const {
    if (request.method == "GET" &&
        (request.path == page::Style().path ||
         request.path == page::Script().path || request.path == "/healthz" ||
         request.path == "/readyz")) {
      return true;
    }
    const std::string header = request.get_header_value("Authorization");
    absl::string_view token = header;
    if (absl::ConsumePrefix(&token, "Bearer ")) {
      return SecretsEqual(token, options_.token);
    }
    // Who knows the token may do all; nobody else can make such a link.
    return SecretsEqual(request.get_param_value("token"), options_.token);
  }

  void AddRoutes() {
    using httplib::Request;
    using httplib::Response;
    http_.Get("/", [](const Request&, Response& response) {
      response.set_content(std::string(page::Html().text),
                           std::string(page::Html().type));
    });
    for (const page::File* file : {&page::Style(), &page::Script()}) {
      http_.Get(std::string(file->path),
                [file](const Request& request, Response& response) {
                  ReplyFile(request, *file, response);
                });
    }
    for (const std::string api : {"/api/v1", "/api"}) AddApi(api);
    http_.Get("/api/v1/update",
              [this](const Request& request, Response& response) {
                const auto since = Since(request);
                if (!since.ok()) return Reply(response, since.status());
                NoteLook();
                response.set_content(
                    board_.Update(*since, Clock::Real().WallNow()).json, kJson);
              });
    http_.Get("/api/v1/stream",
              [this](const Request& request, Response& response) {
                const auto since = Since(request);
                if (!since.ok()) return Reply(response, since.status());
                Stream(*since, response);
              });
    http_.Get("/api/v1/model", [this](const Request&, Response& response) {
      const std::string model = board_.Model();
      response.set_content(model.empty() ? "null" : model, kJson);
    });
    http_.Get("/api/v1/log",
              [this](const Request& request, Response& response) {
                const auto text = commands_.log(request.get_param_value("pod"));
                if (!text.ok()) return Reply(response, text.status());
                response.set_content(*text, "text/plain; charset=utf-8");
              });
    http_.Get("/api/history", [this](const Request&, Response& response) {
      response.set_content(HistoryToJson(board_.Points()), kJson);
    });
    AddProbes();
    http_.Get("/metrics", [this](const Request&, Response& response) {
      response.set_content(StatusToMetrics(board_.Get()),
                           "text/plain; version=0.0.4");
    });
  }

  // For kubelets and load balancers, which have no token.
  void AddProbes() {
    using httplib::Request;
    using httplib::Response;
    http_.Get("/healthz", [this](const Request&, Response& response) {
      const auto age = board_.Age(Clock::Real().Now());
      const bool hangs = age.has_value() && *age > kHanging;
      if (!hangs) {
        MutexLock lock(mu_);
        healthy_at_ = Clock::Real().Now();
      }
      response.status = hangs ? 503 : 200;
      response.set_content(hangs ? "the master's loop hangs\n" : "ok\n",
                           "text/plain");
    });
    http_.Get("/readyz", [this](const Request&, Response& response) {
      const bool ready = board_.Age(Clock::Real().Now()).has_value();
      response.status = ready ? 200 : 503;
      response.set_content(ready ? "ok\n" : "the job is being prepared\n",
                           "text/plain");
    });
  }

  void AddApi(const std::string& api) {
    using httplib::Request;
    using httplib::Response;
    http_.Get(api + "/status", [this](const Request&, Response& response) {
      NoteLook();
      response.set_content(StatusToJson(board_.Get()), kJson);
    });
    http_.Post(api + "/stop", [this](const Request&, Response& response) {
      Reply(response, commands_.stop());
    });
    http_.Post(api + "/scale",
               [this](const Request& request, Response& response) {
                 Reply(response, Scale(request));
               });
  }

  // The files change with the program only.
  static void ReplyFile(const httplib::Request& request, const page::File& file,
                        httplib::Response& response) {
    const std::string tag = absl::StrCat("\"", file.sha256, "\"");
    response.set_header("ETag", tag);
    response.headers.erase("Cache-Control");
    response.set_header("Cache-Control", "no-cache");
    if (request.get_header_value("If-None-Match") == tag) {
      response.status = 304;
      return;
    }
    response.set_content(std::string(file.text), std::string(file.type));
  }

  static absl::StatusOr<uint64_t> Since(const httplib::Request& request) {
    uint64_t since = 0;
    const std::string text = request.get_param_value("since");
    if (text.empty() || absl::SimpleAtoi(text, &since)) return since;
    return absl::InvalidArgumentError(absl::StrCat(
        "since='", text, "': expected a cursor of an earlier answer"));
  }

  // A slow reader must not hold up the end of the server.
  bool WriteInPieces(absl::string_view text, httplib::DataSink& sink) const {
    const absl::Time deadline = Clock::Real().Now() + kMessageTime;
    for (;;) {
      const absl::string_view piece = text.substr(0, kPiece);
      if (!sink.write(piece.data(), piece.size())) return false;
      text.remove_prefix(piece.size());
      if (text.empty()) return true;
      if (board_.closed() || Clock::Real().Now() > deadline) return false;
    }
  }

  // Each viewer holds a thread of the server while it stays.
  void Stream(uint64_t since, httplib::Response& response) {
    {
      MutexLock lock(mu_);
      if (viewers_ >= kMaxViewers) {
        return ReplyError(response, 503,
                          "too many pages follow this job: ask for "
                          "/api/v1/update instead");
      }
      ++viewers_;
    }
    // Buffering on the way would hold messages back.
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, since, first = true](size_t, httplib::DataSink& sink) mutable {
          if (!first &&
              !board_.WaitNews(since, kStreamSpacing, kStreamPeriod)) {
            sink.done();
            return true;
          }
          first = false;
          const StatusBoard::Answer answer =
              board_.Update(since, Clock::Real().WallNow());
          const std::string message =
              absl::StrCat("data: ", answer.json, "\n\n");
          since = answer.cursor;
          const bool sent = WriteInPieces(message, sink);
          if (answer.ended) sink.done();
          return sent;
        },
        [this](bool) {
          {
            MutexLock lock(mu_);
            --viewers_;
          }
          changed_.NotifyAll();
        });
  }

  static absl::StatusOr<std::optional<int64_t>> Count(
      const httplib::Request& request, const char* name) {
    if (!request.has_param(name)) return std::nullopt;
    const std::string text = request.get_param_value(name);
    int64_t count = 0;
    if (absl::SimpleAtoi(text, &count) && count >= 1) return count;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "='", text, "': expected a number of at least 1"));
  }

  absl::Status Scale(const httplib::Request& request) const {
    ScaleRequest scale;
    ELASTICDL_ASSIGN_OR_RETURN(scale.num_workers,
                               Count(request, "num_workers"));
    ELASTICDL_ASSIGN_OR_RETURN(scale.num_servers,
                               Count(request, "num_ps_pods"));
    if (!scale.num_workers.has_value() && !scale.num_servers.has_value()) {
      return absl::InvalidArgumentError(
          "num_workers or num_ps_pods: expected a number of at least 1");
    }
    return commands_.scale(scale);
  }

  void NoteLook() {
    MutexLock lock(mu_);
    last_look_ = Clock::Real().Now();
  }

  void SetListening() {
    {
      MutexLock lock(mu_);
      listening_ = true;
    }
    changed_.NotifyAll();
  }

  const Options options_;
  const StatusBoard& board_;
  const Commands commands_;
  BoundedHttpServer http_{kThreads};
  int port_ = -1;

  mutable Mutex mu_;
  CondVar changed_;
  bool listening_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time last_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int viewers_ ABSL_GUARDED_BY(mu_) = 0;
  // The last good answer to /healthz.
  std::optional<absl::Time> healthy_at_ ABSL_GUARDED_BY(mu_);
  // Strangers must not fill the disk with lines about them.
  LogLimit refusals_;

  Mutex stop_mu_;  // Join is not thread-safe
  Thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpStatus>> HttpStatus::Start(
    Options options, const StatusBoard& board, Commands commands) {
  if (options.token.empty()) {
    return absl::InvalidArgumentError("status page: the token is empty");
  }
  auto server =
      std::make_unique<Server>(std::move(options), board, std::move(commands));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return std::unique_ptr<HttpStatus>(new HttpStatus(std::move(server)));
}

HttpStatus::HttpStatus(std::unique_ptr<Server> server)
    : server_(std::move(server)) {}
HttpStatus::~HttpStatus() { Stop(); }
std::string HttpStatus::address() const { return server_->address(); }
std::string HttpStatus::page_url() const { return server_->page_url(); }
bool HttpStatus::ProbesFail(absl::Time now) const {
  return server_->ProbesFail(now);
}
void HttpStatus::ShowEnd() { server_->ShowEnd(); }
void HttpStatus::Stop() { server_->Stop(); }

}  // namespace elasticdl::master
