#include "cluster/page_forward.h"

#include <httplib.h>
#include <sys/socket.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/clock.h"
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
// Of an answer that is no stream.
constexpr absl::Duration kLongestAnswer = absl::Seconds(30);
constexpr size_t kMostAnswerBytes = 64 << 20;
constexpr size_t kSecretBytes = 16;

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
      : client_(client),
        options_(std::move(options)),
        secret_(absl::BytesToHexString(RandomBytes(kSecretBytes))) {
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
    // Before the body is read.
    http_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return Refuse(request, response)
                     ? httplib::Server::HandlerResponse::Handled
                     : httplib::Server::HandlerResponse::Unhandled;
        });
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
    return absl::StrCat("http://", kLoopback, ":", port_, "/?token=", secret_);
  }

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;

  // Web pages can make a browser send requests to this port, and so can other
  // users of this machine.
  bool Refuse(const httplib::Request& request, httplib::Response& response) {
    const std::string host = request.get_header_value("Host");
    if (host != absl::StrCat(kLoopback, ":", port_) &&
        host != absl::StrCat("localhost:", port_)) {
      ReplyError(response, 403, "this is not the host of the page");
      return true;
    }
    const bool post = request.method == "POST";
    if (!post && request.method != "GET") {
      ReplyError(response, 405, "only GET and POST");
      return true;
    }
    // Only a length is held against the limit of a body.
    if (request.has_header("Transfer-Encoding") ||
        (post && !request.has_header("Content-Length"))) {
      ReplyError(response, 411, "a request must say its length");
      return true;
    }
    if (!(IsPublic(request.path) && !post) && !Allowed(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      ReplyError(response, 401,
                 "the token of this address is missing or wrong");
      return true;
    }
    return false;
  }

  void Handle(const httplib::Request& request, httplib::Response& response) {
    if (IsPublic(request.path)) return ReplyFile(request.path, response);
    Query query;
    for (const auto& [name, value] : request.params) {
      if (name != "token") query.emplace_back(name, value);
    }
    // The API server uses the header Authorization itself.
    query.emplace_back("token", options_.token);
    if (request.method == "GET" && request.path == "/api/v1/stream") {
      return Stream(std::move(query), response);
    }
    const char* const type = TypeOf(request.method, request.path);
    if (type == nullptr) return ReplyError(response, 404, "no such page");
    const absl::StatusOr<Answer> answer =
        AskWhole(request.method, request.path, query);
    if (!answer.ok()) {
      return ReplyError(response, 502, answer.status().message());
    }
    response.status = answer->code;
    response.set_content(answer->body, answer->good ? type : kJsonType);
  }

  // Fetched once: nobody who has no token can make more requests with the
  // user's credentials than that.
  void ReplyFile(const std::string& path, httplib::Response& response) {
    MutexLock lock(files_mu_);
    std::string& file = files_[path];
    if (file.empty()) {
      const absl::StatusOr<Answer> answer = AskWhole("GET", path, {});
      if (!answer.ok() || !answer->good) {
        return ReplyError(
            response, 502,
            answer.ok() ? absl::StrCat("the master answers ", answer->code)
                        : answer.status().message());
      }
      file = answer->body;
    }
    response.set_content(file, TypeOf("GET", path));
  }

  struct Answer {
    int code = 0;
    bool good = false;
    std::string body;
  };
  absl::StatusOr<Answer> AskWhole(const std::string& method,
                                  const std::string& path, const Query& query) {
    const absl::Time deadline = Clock::Real().Now() + kLongestAnswer;
    Answer whole;
    bool too_much = false;
    const absl::StatusOr<kube::Response> answer =
        Ask(method, path, query, [&](absl::string_view bytes) {
          too_much = whole.body.size() + bytes.size() > kMostAnswerBytes ||
                     Clock::Real().Now() > deadline;
          if (!too_much) absl::StrAppend(&whole.body, bytes);
          return !too_much;
        });
    if (too_much) {
      return absl::ResourceExhaustedError(
          "the answer of the job is too long or comes too slowly");
    }
    if (!answer.ok()) return answer.status();
    whole.code = answer->code;
    whole.good = whole.code >= 200 && whole.code < 300;
    if (!whole.good) whole.body = answer->body;
    return whole;
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
      return SecretsEqual(token, secret_);
    }
    return SecretsEqual(request.get_param_value("token"), secret_);
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
  // Between the browser and this server: the job's own token stays here.
  const std::string secret_;
  kube::Cancellation stop_;
  httplib::Server http_;
  int port_ = -1;

  Mutex files_mu_;
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(files_mu_);

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
