// A Docker engine: builds and pushes images. Uses the engine's HTTP API; the
// docker program is not needed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/docker/context.h"
#include "elasticdl/docker/progress.h"

namespace elasticdl::docker {

// What the docker program reads from the environment.
struct EngineOptions {
  // DOCKER_HOST: unix:///PATH or tcp://HOST:PORT. "" = the usual socket.
  std::string host;
  // DOCKER_TLS_VERIFY: TLS over tcp://, with ca.pem, cert.pem and key.pem of
  // cert_path (DOCKER_CERT_PATH; "" = config_dir).
  bool tls_verify = false;
  std::string cert_path;
  // DOCKER_CONFIG or ~/.docker: config.json with the registries' credentials.
  std::string config_dir;
  // PATH, for the programs docker-credential-*.
  std::string path;
};

struct BuildOptions {
  ContextOptions context;
  // The name of the image.
  std::string image;
  // Of the RUN steps: "" = the engine's default, "host", "none", …
  std::string network;
  // Values of ARG.
  std::map<std::string, std::string> build_args;
  // Stage to stop at; "" = the last one.
  std::string target;
  // Ask the registry for newer base images.
  bool pull = false;
  // Build every step again.
  bool no_cache = false;
};

// Calls are for one thread at a time, Cancel for any thread.
class Engine {
 public:
  // Finds the engine and agrees on a version of the API. UNAVAILABLE: no engine
  // listens there; PERMISSION_DENIED: this user may not use it;
  // INVALID_ARGUMENT: `options` name no engine. Messages say what to do.
  static absl::StatusOr<std::unique_ptr<Engine>> Connect(
      const EngineOptions& options);
  ~Engine();

  // Sends the context, builds and names the image; returns its id. `show` gets
  // the progress, on this thread. ABORTED: a step failed; the message has the
  // step and the engine's error. INVALID_ARGUMENT, NOT_FOUND: something is
  // wrong with the context. CANCELLED.
  absl::StatusOr<std::string> Build(const BuildOptions& options,
                                    const ProgressCallback& show);

  // The same with a context that was already read (options.context is unused).
  absl::StatusOr<std::string> Build(const BuildOptions& options,
                                    const BuildContext& context,
                                    const ProgressCallback& show);

  // Pushes to the registry in the name, with the user's credentials. NOT_FOUND:
  // the engine has no such image; PERMISSION_DENIED: the registry refuses;
  // UNAVAILABLE: any other error, with the engine's message.
  absl::Status Push(const std::string& image, const ProgressCallback& show);

  // Registries for which `docker login` has stored something, in its words.
  std::vector<std::string> Registries() const;
  // Has the engine log in at one of them with the user's credentials.
  // PERMISSION_DENIED: the registry refuses them; NOT_FOUND: there are none;
  // UNAVAILABLE, DEADLINE_EXCEEDED: the engine does not reach the registry.
  absl::Status CheckLogin(const std::string& registry, absl::Duration timeout);

  // The id of an image that the engine has; NOT_FOUND.
  absl::StatusOr<std::string> ImageId(const std::string& image);

  // Ends the current call and all later ones with CANCELLED. The engine stops a
  // build or push when the connection closes.
  void Cancel();

  // "1.41".
  const std::string& api_version() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace elasticdl::docker
