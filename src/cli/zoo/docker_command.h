// What the commands that use the Docker engine share.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/docker/context.h"
#include "elasticdl/docker/engine.h"

namespace elasticdl::cli {

// DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH, DOCKER_CONFIG, PATH.
docker::EngineOptions EngineOptionsFromEnvironment();

// Builds and prints the progress. Ctrl-C ends this program, and with it the
// connection and the build.
absl::Status BuildImage(docker::Engine& engine,
                        const docker::BuildOptions& options,
                        const docker::BuildContext& context);

// Pushes and prints the progress.
absl::Status PushImage(docker::Engine& engine, const std::string& image);

}  // namespace elasticdl::cli
