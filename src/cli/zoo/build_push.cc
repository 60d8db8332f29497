// elasticdl zoo build and push: the part that talks to the Docker engine.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/grammar.h"
#include "zoo/docker_command.h"
#include "zoo/zoo.h"

namespace elasticdl::cli {
namespace {

// --dockerfile, else ./Dockerfile as the original, else PATH/Dockerfile.
absl::StatusOr<std::string> FindDockerfile(const ZooBuildFlags& flags) {
  if (!flags.dockerfile.empty()) return flags.dockerfile;
  const std::string in_path = JoinPath(flags.path[0], "Dockerfile");
  for (const std::string& file : {std::string("Dockerfile"), in_path}) {
    if (FileExists(file) && !IsDirectory(file)) return file;
  }
  return absl::NotFoundError(absl::StrCat("there is neither ./Dockerfile nor ",
                                          in_path,
                                          "; elasticdl zoo init writes one"));
}

absl::Status Build(const ZooBuildFlags& flags) {
  docker::BuildOptions options;
  options.image = flags.image;
  options.network = flags.network;
  options.no_cache = flags.no_cache;
  options.pull = flags.pull;
  ELASTICDL_ASSIGN_OR_RETURN(const auto args,
                             flags::ParseEnvs(flags.build_args));
  options.build_args.insert(args.begin(), args.end());
  options.context.folder = flags.path[0];
  ELASTICDL_ASSIGN_OR_RETURN(options.context.dockerfile, FindDockerfile(flags));
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::unique_ptr<docker::Engine> engine,
      docker::Engine::Connect(EngineOptionsFromEnvironment()));
  ELASTICDL_ASSIGN_OR_RETURN(const docker::BuildContext context,
                             docker::ReadContext(options.context));
  return BuildImage(*engine, options, context);
}

absl::Status Push(const std::string& image) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::unique_ptr<docker::Engine> engine,
      docker::Engine::Connect(EngineOptionsFromEnvironment()));
  return PushImage(*engine, image);
}

}  // namespace

int RunZooBuild(const std::vector<std::string>& args) {
  ZooBuildFlags flags;
  flags::FlagSet set(
      "elasticdl zoo build",
      "Builds the image of a model zoo from ./Dockerfile, or from "
      "PATH/Dockerfile when there is none, with the Docker engine.");
  AddZooBuildFlags(&flags, &set);
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  if (!IsDirectory(flags.path[0])) {
    return set.Report(absl::InvalidArgumentError(
        absl::StrCat("PATH: '", flags.path[0], "' is not a folder")));
  }
  const absl::Status status = Build(flags);
  if (!status.ok()) return FailZoo(set, status);
  std::printf("Next: elasticdl zoo push %s\n", flags.image.c_str());
  return 0;
}

int RunZooPush(const std::vector<std::string>& args) {
  std::vector<std::string> image;
  flags::FlagSet set(
      "elasticdl zoo push",
      "Pushes an image to its registry, with the credentials that "
      "docker login left.");
  set.AddPositional("IMAGE", &image, 1, "the image to push", 1);
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  if (const absl::Status status = flags::CheckImageName(image[0]);
      !status.ok()) {
    return set.Report(Annotate(status, "IMAGE"));
  }
  const absl::Status status = Push(image[0]);
  return status.ok() ? 0 : FailZoo(set, status);
}

}  // namespace elasticdl::cli
