#include "zoo/zoo.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cluster_exec.h"
#include "command.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"

namespace elasticdl::cli {
namespace {

constexpr char kModelSymbol[] = "custom_model";
// The user `elasticdl` of docker/Dockerfile, by number: Kubernetes can then
// see that it is not root.
constexpr char kImageUser[] = "1000";

// `path` relative to `context`; an image can contain only files below it.
absl::StatusOr<std::string> BelowContext(const std::string& flag,
                                         const std::string& path,
                                         const std::string& context) {
  std::error_code error;
  const std::filesystem::path root =
      std::filesystem::weakly_canonical(context, error);
  const std::filesystem::path full = std::filesystem::weakly_canonical(
      std::filesystem::path(context) / path, error);
  const std::string relative = full.lexically_relative(root).string();
  if (relative.empty() || relative == ".." ||
      absl::StartsWith(relative, "../")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": '", path, "' must lie below the current ",
                     "folder, from which the image is built"));
  }
  return relative;
}

absl::StatusOr<std::string> FolderBelow(const std::string& flag,
                                        const std::string& path,
                                        const std::string& context) {
  ELASTICDL_ASSIGN_OR_RETURN(std::string relative,
                             BelowContext(flag, path, context));
  if (!IsDirectory(JoinPath(context, relative))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": '", path, "' is not a folder"));
  }
  return relative;
}

std::string BaseName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// --model_def of each source below `zoo` that has a custom_model, in order of
// the names.
std::vector<std::string> FindModels(const std::string& zoo) {
  std::vector<std::string> models;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(zoo, error), end;
       !error && it != end; it.increment(error)) {
    const std::filesystem::path& path = it->path();
    if (path.extension() != ".cc") continue;
    const absl::StatusOr<std::string> text = ReadFile(path.string());
    if (!text.ok() || !absl::StrContains(*text, kModelSymbol)) continue;
    const std::string name =
        path.lexically_relative(zoo).replace_extension().string();
    models.push_back(absl::StrCat(absl::StrReplaceAll(name, {{"/", "."}}), ".",
                                  kModelSymbol));
  }
  std::sort(models.begin(), models.end());
  return models;
}

// One step for all models: the common part is compiled once, in one layer.
std::string CompileStep(const std::vector<std::string>& models) {
  if (models.empty()) return "";
  return absl::StrCat("RUN elasticdl-compile-zoo /model_zoo \\\n    ",
                      absl::StrJoin(models, " \\\n    "), "\n");
}

// The cluster specification goes beside the Dockerfile, as in the original.
absl::Status CopyClusterSpec(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cluster_spec: ", text.status().message()));
  }
  const std::string name = BaseName(path);
  std::error_code error;
  if (std::filesystem::equivalent(path, name, error)) return absl::OkStatus();
  return WriteFileAtomic(name, *text);
}

absl::Status Init(const ZooInitFlags& flags) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text,
                             MakeDockerfile(flags, "."));
  if (!flags.cluster_spec.empty()) {
    ELASTICDL_RETURN_IF_ERROR(CopyClusterSpec(flags.cluster_spec));
  }
  if (FileExists("Dockerfile") && !flags.force) {
    const absl::StatusOr<std::string> present = ReadFile("Dockerfile");
    if (!present.ok() || *present != text) {
      return absl::AlreadyExistsError(
          "./Dockerfile already exists and differs; --force overwrites it");
    }
  }
  return WriteFileAtomic("Dockerfile", text);
}

int RunInit(const Args& args) {
  ZooInitFlags flags;
  flags::FlagSet set(
      "elasticdl zoo init",
      "Writes ./Dockerfile for an image with a model zoo. Edit it as "
      "needed, then run elasticdl zoo build.");
  AddZooInitFlags(&flags, &set);
  const int exit_code = set.ParseOrExitCode(args);
  if (exit_code >= 0) return exit_code;
  const absl::Status status = Init(flags);
  if (!status.ok()) return FailZoo(set, status);
  std::printf("Wrote ./Dockerfile. Next: elasticdl zoo build --image=NAME .\n");
  return 0;
}

// These commands need libcurl, which only the other program links.
int HandOver(const std::string& command, const Args& args) {
  const absl::Status status = ExecCluster(command, args);
  std::fprintf(stderr, "elasticdl zoo: %s\n",
               std::string(status.message()).c_str());
  return 1;
}
int RunBuild(const Args& args) { return HandOver("zoo-build", args); }
int RunPush(const Args& args) { return HandOver("zoo-push", args); }

}  // namespace

int FailZoo(const flags::FlagSet& set, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return set.Report(status);
  std::fprintf(stderr, "%s: %s\n", set.command().c_str(),
               std::string(status.message()).c_str());
  return 1;
}

void AddZooInitFlags(ZooInitFlags* flags, flags::FlagSet* set) {
  const std::string group = "Options";
  set->Add(
      "base_image", &flags->base_image,
      flags::Info(group, "Image to start from; it has the elasticdl programs.")
          .Value("IMAGE")
          .Check(flags::CheckImageName)
          .Old({"image_base"}));
  set->Add(
      "model_zoo", &flags->model_zoo,
      flags::Info(group,
                  "Folder with the models; packages.txt in it lists Debian "
                  "packages to install, requirements.txt Python ones.")
          .Value("DIR"));
  set->Add("cluster_spec", &flags->cluster_spec,
           flags::Info(group, "Cluster specification to put into the image.")
               .Value("FILE"));
  set->Add("local_pkg_dir", &flags->local_pkg_dir,
           flags::Info(group,
                       "Folder with elasticdl's own .deb packages to install "
                       "over those of the base image.")
               .Value("DIR"));
  set->Add("extra_pypi_index", &flags->extra_pypi_index,
           flags::Info(group, "Further package index for requirements.txt.")
               .Value("URL"));
  set->Add("force", &flags->force,
           flags::Info(group, "Overwrite a Dockerfile that differs."));
}

void AddZooBuildFlags(ZooBuildFlags* flags, flags::FlagSet* set) {
  set->Add("image", &flags->image,
           flags::Info("Options", "Name of the image.")
               .Value("IMAGE")
               .Required()
               .Check(flags::CheckImageName));
  set->Add("dockerfile", &flags->dockerfile,
           flags::Info("Options", "Another Dockerfile.").Value("FILE"));
  set->Add(
      "network", &flags->network,
      flags::Info("Options",
                  "Network of the build's commands, e.g. host; default: the "
                  "engine's.")
          .Value("NAME"));
  set->Add("build_args", &flags->build_args,
           flags::Info("Options", "Values of the Dockerfile's ARGs: A=x,B=y.")
               .Value("ARGS")
               .Grammar(flags::ParseEnvs));
  set->Add("no_cache", &flags->no_cache,
           flags::Info("Options", "Run every step again."));
  set->Add("pull", &flags->pull,
           flags::Info("Options", "Ask the registry for a newer base image."));
  set->AddPositional("PATH", &flags->path, 1, "folder to build from", 1);
}

absl::StatusOr<std::string> MakeDockerfile(const ZooInitFlags& flags,
                                           const std::string& context) {
  std::string text = absl::StrCat("FROM ", flags.base_image, "\n");
  ELASTICDL_ASSIGN_OR_RETURN(
      const std::string zoo,
      FolderBelow("model_zoo", flags.model_zoo, context));
  const std::string zoo_path = JoinPath(context, zoo);
  std::string as_root;
  if (!flags.local_pkg_dir.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const std::string packages,
        FolderBelow("local_pkg_dir", flags.local_pkg_dir, context));
    absl::StrAppend(&as_root, "COPY ", packages, "/*.deb /tmp/elasticdl/\n",
                    "RUN apt-get update && apt-get install -y ",
                    "/tmp/elasticdl/*.deb && rm -r /tmp/elasticdl\n");
  }
  if (FileExists(JoinPath(zoo_path, "packages.txt"))) {
    absl::StrAppend(&as_root, "COPY ", JoinPath(zoo, "packages.txt"),
                    " /tmp/packages.txt\n", "RUN apt-get update && ",
                    "xargs -a /tmp/packages.txt apt-get install -y\n");
  }
  if (FileExists(JoinPath(zoo_path, "requirements.txt"))) {
    absl::StrAppend(
        &as_root, "COPY ", JoinPath(zoo, "requirements.txt"),
        " /tmp/requirements.txt\n", "RUN command -v pip || ",
        "(apt-get update && apt-get install -y python3-pip)\n",
        // Debian protects its Python packages; in an image that is not needed.
        "RUN PIP_BREAK_SYSTEM_PACKAGES=1 pip install ",
        "-r /tmp/requirements.txt --extra-index-url=", flags.extra_pypi_index,
        "\n");
  }
  // Packages before models, so that a changed model does not reinstall them.
  if (!as_root.empty()) {
    absl::StrAppend(&text, "USER root\n", as_root, "USER ", kImageUser, "\n");
  }
  // Owned by the user that runs the job, whatever the files' modes are here.
  absl::StrAppend(&text, "COPY --chown=", kImageUser, ":0 ", zoo,
                  " /model_zoo\n");
  absl::StrAppend(&text, CompileStep(FindModels(zoo_path)));
  if (!flags.cluster_spec.empty()) {
    const std::string name = BaseName(flags.cluster_spec);
    absl::StrAppend(&text, "COPY ", name, " /cluster_spec/", name, "\n");
  }
  return text;
}

const std::vector<Command>& ZooCommands() {
  static const auto* commands = new std::vector<Command>{
      {"init", "Write a Dockerfile for a model zoo.", RunInit},
      {"build", "Build the image.", RunBuild},
      {"push", "Push the image to its registry.", RunPush},
  };
  return *commands;
}

int RunZoo(const Args& args) {
  return Dispatch("elasticdl zoo", "Makes images of model zoos.", ZooCommands(),
                  args);
}

}  // namespace elasticdl::cli
