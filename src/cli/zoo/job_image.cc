#include "zoo/job_image.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "zoo/docker_command.h"
#include "zoo/zoo.h"

namespace elasticdl::cli {
namespace {

// Digits of the hash in a tag: 48 bits distinguish the images of one job.
constexpr size_t kTagDigits = 12;

absl::Status CheckZoo(const flags::JobFlags& flags) {
  if (flags.model_zoo.empty()) {
    return absl::InvalidArgumentError(
        "--docker_image_prefix needs --model_zoo, the local folder that is "
        "built into the image");
  }
  if (!IsDirectory(flags.model_zoo)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model_zoo: '", flags.model_zoo,
        "' is not a folder on this machine; for an image that holds the model "
        "zoo already give --image instead of --docker_image_prefix"));
  }
  return absl::OkStatus();
}

docker::BuildOptions MakeBuild(const std::string& zoo,
                               const std::string& dockerfile) {
  docker::BuildOptions options;
  options.context.folder = zoo;
  options.context.dockerfile_text = dockerfile;
  return options;
}

}  // namespace

bool BuildsImage(const flags::JobFlags& flags) {
  return flags.image.empty() && !flags.docker_image_prefix.empty();
}

std::string JobImageName(const std::string& prefix, const std::string& job_name,
                         const std::string& hash) {
  return absl::StrCat(prefix, absl::EndsWith(prefix, "/") ? "" : "/", job_name,
                      ":", hash.substr(0, kTagDigits));
}

absl::StatusOr<std::string> PrepareImage(const flags::JobFlags& flags) {
  if (!BuildsImage(flags)) return flags.image;
  ELASTICDL_RETURN_IF_ERROR(CheckZoo(flags));
  ZooInitFlags zoo;
  if (!flags.image_base.empty()) zoo.base_image = flags.image_base;
  zoo.extra_pypi_index = flags.extra_pypi_index;
  ELASTICDL_ASSIGN_OR_RETURN(std::string dockerfile,
                             MakeDockerfile(zoo, flags.model_zoo));
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::unique_ptr<docker::Engine> engine,
      docker::Engine::Connect(EngineOptionsFromEnvironment()));
  // The base image may have changed under the same name.
  const absl::StatusOr<std::string> base_id = engine->ImageId(zoo.base_image);
  if (base_id.ok()) absl::StrAppend(&dockerfile, "# ", *base_id, "\n");
  docker::BuildOptions build = MakeBuild(flags.model_zoo, dockerfile);
  ELASTICDL_ASSIGN_OR_RETURN(const docker::BuildContext context,
                             docker::ReadContext(build.context));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string hash,
                             docker::HashContext(context));
  build.image = JobImageName(flags.docker_image_prefix, flags.job_name, hash);
  ELASTICDL_RETURN_IF_ERROR(BuildImage(*engine, build, context));
  ELASTICDL_RETURN_IF_ERROR(PushImage(*engine, build.image));
  return build.image;
}

}  // namespace elasticdl::cli
