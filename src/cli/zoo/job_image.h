// The image of a job on a cluster: an existing one, or one that is built from
// the local model zoo and pushed.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::cli {

// Will PrepareImage build and push? (--docker_image_prefix was given and
// --image was not.)
bool BuildsImage(const flags::JobFlags& flags);

// `<prefix>/<job_name>:<beginning of the hash>`; the prefix may end with '/'.
// Pure.
std::string JobImageName(const std::string& prefix, const std::string& job_name,
                         const std::string& hash);

// The name of the image for a job with flags.OnCluster():
//  * --image (or --image_base without --docker_image_prefix, which the
//    flags have translated to it): that, as it is; nothing is built;
//  * --docker_image_prefix: builds `<prefix>/<job_name>:<hash of the content>`
//    from --image_base (default elasticdl:latest) and the local folder
//    --model_zoo, compiles the models in it, pushes it. Progress goes to
//    stdout.
// Needs the Docker engine (DOCKER_HOST, …) only in the second case.
// INVALID_ARGUMENT: the flags do not say what to build; UNAVAILABLE,
// PERMISSION_DENIED: no engine, or no right to use it; ABORTED: the build
// failed, with the engine's message and the failing step.
absl::StatusOr<std::string> PrepareImage(const flags::JobFlags& flags);

}  // namespace elasticdl::cli
