#include "cluster/page_forward.h"

#include <httplib.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/secret.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/page/files.h"

namespace elasticdl::cli {
namespace {

constexpr char kJsonType[] = "application/json";
constexpr char kLoopback[] = "127.0.0.1";
// A browser opens about six connections, and each stream holds a thread.
constexpr size_t kThreads = 12;
// The longest silence of an answer. A stream says something each second.
constexpr absl::Duration kSilence = absl::Seconds(20);

void ReplyError(httplib::Response& response, int code,
                absl::string_view message) {
  response.status = code;
  const nlohmann::json body = {{"error", std::string(message)}};
  response.set_content(JsonText(body), kJsonType);
}

// What there is to see, and its type. The API server passes types on, too, but
// only these paths are passed on at all.
const char* TypeOf(const std::string& method, const std::string& path) {
  if (method == "POST") {
    const bool known = path == "/api/v1/scale" || path == "/api/v1/stop";
    return known ? kJsonType : nullptr;
  }
  if (method != "GET") return nullptr;
  if (path == "/") return "text/html; charset=utf-8";
  if (path == page::Style().path) return "text/css; charset=utf-8";
  if (path == page::Script().path) return "text/javascript; charset=utf-8";
  if (path == "/api/v1/log") return "text/plain; charset=utf-8";
  if (path == "/metrics") return "text/plain; version=0.0.4";
  for (const char* known : {"status", "update", "model"}) {
    if (path == absl::StrCat("/api/v1/", known)) return kJsonType;
  }
  return nullptr;
}

// They hold nothing of the job, and a browser asks for them without a token.
bool IsPublic(const std::string& path) {
  return path == page::Style().path || path == page::Script().path;
}

}  // namespace

class PageForward::Server {
 public:
  Server(kube::Client& client, Options options)
      : client_(client), options_(std::move(options)) {
    // The factory is called once the server accepts: only then does stop()
    // have an effect.
    http_.new_task_queue = [this] {
      SetListening();
      return new httplib::ThreadPool(kThreads);
    };
    // The default would let another process share the port.
    http_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    http_.set_keep_alive_max_count(1);
    http_.set_read_timeout(2, 0);
    http_.set_write_timeout(5, 0);
    http_.set_payload_max_length(4096);
    // As the master sends them: the API server is not asked for headers.
    http_.set_default_headers(
        {{"Cache-Control", "no-store"},
         {"Referrer-Policy", "no-referrer"},
         {"X-Content-Type-Options", "nosniff"},
         {"Content-Security-Policy",
          "default-src 'none'; img-src data:; style-src 'self'; "
          "script-src 'self'; connect-src 'self'; base-uri 'none'; "
          "form-action 'none'; frame-ancestors 'none'"}});
    const auto handle = [this](const httplib::Request& request,
                               httplib::Response& response) {
      Handle(request, response);
    };
    http_.Get(".*", handle);
    http_.Post(".*", handle);
  }

  ~Server() {
    stop_.Cancel();
    http_.stop();
    thread_.Join();
  }

  absl::Status Listen() {
    port_ = options_.port == 0 ? http_.bind_to_any_port(kLoopback)
            : http_.bind_to_port(kLoopback, options_.port) ? options_.port
                                                           : -1;
    if (port_ < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", kLoopback, ":", options_.port,
                       "; give another --port, or none for a free one"));
    }
    thread_ = Thread("page-forward", [this] {
      http_.listen_after_bind();
      SetListening();  // also when it failed at once: nobody waits for ever
    });
    MutexLock lock(mu_);
    while (!listening_) changed_.Wait(mu_);
    return absl::OkStatus();
  }

  std::string url() const {
    return absl::StrCat("http://", kLoopback, ":", port_,
                        "/?token=", options_.token);
  }

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;

  void Handle(const httplib::Request& request, httplib::Response& response) {
    if (!IsPublic(request.path) && !Allowed(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      return ReplyError(response, 401, "the job's token is missing or wrong");
    }
    Query query;
    for (const auto& [name, value] : request.params) {
      if (name != "token") query.emplace_back(name, value);
    }
    // The API server uses the header Authorization itself.
    if (!IsPublic(request.path)) query.emplace_back("token", options_.token);
    if (request.method == "GET" && request.path == "/api/v1/stream") {
      return Stream(std::move(query), response);
    }
    const char* const type = TypeOf(request.method, request.path);
    if (type == nullptr) return ReplyError(response, 404, "no such page");
    std::string body;
    const absl::StatusOr<kube::Response> answer =
        Ask(request.method, request.path, query, [&](absl::string_view bytes) {
          absl::StrAppend(&body, bytes);
          return true;
        });
    if (!answer.ok()) {
      return ReplyError(response, 502, answer.status().message());
    }
    const bool good = answer->code >= 200 && answer->code < 300;
    response.status = answer->code;
    response.set_content(good ? body : answer->body, good ? type : kJsonType);
  }

  absl::StatusOr<kube::Response> Ask(const std::string& method,
                                     const std::string& path,
                                     const Query& query,
                                     const kube::Transport::ChunkSink& chunk) {
    return client_.ProxyStream(
        {options_.pod, options_.pod_port, method,
         absl::StrSplit(path, '/', absl::SkipEmpty()), query},
        kSilence, &stop_, chunk);
  }

  // Holds a thread until the master or the browser ends it.
  void Stream(Query query, httplib::Response& response) {
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, query = std::move(query)](size_t, httplib::DataSink& sink) {
          // Whoever gets nothing asks for /api/v1/update instead.
          Ask("GET", "/api/v1/stream", query, [&](absl::string_view bytes) {
            return sink.write(bytes.data(), bytes.size());
          }).IgnoreError();
          sink.done();
          return true;
        });
  }

  bool Allowed(const httplib::Request& request) const {
    const std::string header = request.get_header_value("Authorization");
    absl::string_view token = header;
    if (absl::ConsumePrefix(&token, "Bearer ")) {
      return SecretsEqual(token, options_.token);
    }
    return SecretsEqual(request.get_param_value("token"), options_.token);
  }

  void SetListening() {
    {
      MutexLock lock(mu_);
      listening_ = true;
    }
    changed_.NotifyAll();
  }

  kube::Client& client_;
  const Options options_;
  kube::Cancellation stop_;
  httplib::Server http_;
  int port_ = -1;

  Mutex mu_;
  CondVar changed_;
  bool listening_ ABSL_GUARDED_BY(mu_) = false;
  Thread thread_;
};

absl::StatusOr<std::unique_ptr<PageForward>> PageForward::Start(
    kube::Client& client, const Options& options) {
  auto server = std::make_unique<Server>(client, options);
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return std::unique_ptr<PageForward>(new PageForward(std::move(server)));
}

PageForward::PageForward(std::unique_ptr<Server> server)
    : server_(std::move(server)) {}
PageForward::~PageForward() = default;
std::string PageForward::url() const { return server_->url(); }

}  // namespace elasticdl::cli
