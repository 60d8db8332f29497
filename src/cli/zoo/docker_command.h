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

// Builds with the progress on stdout. Ctrl-C ends this program, and with its
// connection the build.
absl::Status BuildImage(docker::Engine& engine,
                        const docker::BuildOptions& options,
                        const docker::BuildContext& context);

// Pushes with the progress on stdout.
absl::Status PushImage(docker::Engine& engine, const std::string& image);

}  // namespace elasticdl::cli
