// Flags of older versions: accepted, and translated where there is something to
// translate to.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "job_flags_parts.h"

namespace elasticdl::flags {
namespace {

constexpr char kOld[] = "Old";
constexpr char kDefaultSymbol[] = "custom_model";

Info Old(const std::string& hint = "") {
  return Info(kOld, "").Hidden().Hint(hint);
}

struct ResourceFlag {
  const char* name;
  std::string* part;
  const char* resource;
  const char* target_name;
  std::string* target;
};

std::vector<ResourceFlag> ResourceFlags(JobFlags* f) {
  JobFlags::Legacy* old = &f->legacy;
  return {
      {"master_cpu_request", &old->master_cpu_request, "cpu",
       "master_resource_request", &f->master_resource_request},
      {"master_memory_request", &old->master_memory_request, "memory",
       "master_resource_request", &f->master_resource_request},
      {"master_cpu_limit", &old->master_cpu_limit, "cpu",
       "master_resource_limit", &f->master_resource_limit},
      {"master_memory_limit", &old->master_memory_limit, "memory",
       "master_resource_limit", &f->master_resource_limit},
      {"worker_cpu_request", &old->worker_cpu_request, "cpu",
       "worker_resource_request", &f->worker_resource_request},
      {"worker_memory_request", &old->worker_memory_request, "memory",
       "worker_resource_request", &f->worker_resource_request},
      {"worker_cpu_limit", &old->worker_cpu_limit, "cpu",
       "worker_resource_limit", &f->worker_resource_limit},
      {"worker_memory_limit", &old->worker_memory_limit, "memory",
       "worker_resource_limit", &f->worker_resource_limit},
  };
}

void AddTranslated(JobFlags* f, FlagSet* set) {
  JobFlags::Legacy* old = &f->legacy;
  set->Add("model_file", &old->model_file, Old());
  set->Add("model_class", &old->model_class, Old());
  set->Add("records_per_task", &old->records_per_task,
           Old().Alias({"record_per_task"}).Min(1));
  set->Add("volume_name", &old->volume_name, Old().Alias({"volumn_name"}));
  set->Add("mount_path", &old->mount_path, Old());
  for (const ResourceFlag& flag : ResourceFlags(f)) {
    const std::string resource = flag.resource;
    set->Add(
        flag.name, flag.part, Old().Check([resource](const std::string& text) {
          return ParseResources(absl::StrCat(resource, "=", text)).status();
        }));
  }
}

// How jobs were submitted before `zoo build`; still the shortest way.
void AddImage(JobFlags* f, FlagSet* set) {
  set->Add("docker_image_prefix", &f->docker_image_prefix,
           Info(kClusterGroup,
                "Build the local --model_zoo into an image below this "
                "repository and push it first, e.g. gcr.io/project.")
               .Value("REPO")
               .Check(CheckImageName)
               .Old({"docker_image_repository"}));
  set->Add("image_base", &f->image_base,
           Info(kClusterGroup,
                "What that image starts from; default: elasticdl:latest. "
                "Without --docker_image_prefix: the image of the job.")
               .Value("IMAGE")
               .Check(CheckImageName));
}

void AddIgnored(JobFlags* f, FlagSet* set) {
  const std::pair<const char*, const char*> kIgnored[] = {
      {"codec_type", "the model's feed parses the records"},
      {"codec_file", "the model's feed parses the records"},
      {"learning_rate_scheduler", "use LearningRateScheduler in callbacks"},
      {"repository", "see elasticdl zoo build"},
      {"docker_base_url", "set DOCKER_HOST for elasticdl zoo build"},
      {"docker_tlscert", "set DOCKER_CERT_PATH for elasticdl zoo build"},
      {"docker_tlskey", "set DOCKER_CERT_PATH for elasticdl zoo build"},
      {"embedding_service_endpoint", "embeddings live in parameter servers"},
      {"collective_communicator_service_name", "the master forms the group"},
      {"eval_cpu_request", "workers evaluate"},
      {"eval_cpu_limit", "workers evaluate"},
      {"eval_memory_request", "workers evaluate"},
      {"eval_memory_limit", "workers evaluate"},
      {"num_evaluator", "workers evaluate"},
      {"evaluator_resource_request", "workers evaluate"},
      {"evaluator_resource_limit", "workers evaluate"},
      {"chief_resource_request", "see --worker_resource_request"},
      {"chief_resource_limit", "see --worker_resource_limit"},
      {"ps_image", "parameter servers run in --worker_image"},
  };
  for (const auto& [name, why] : kIgnored) {
    set->Add(name, &f->ignored,
             Old(absl::StrCat("--", name, " no longer has any effect: ", why)));
  }
  for (const char* name : {"use_go_ps", "push_image"}) {
    set->Add(name, &f->ignored_bool,
             Old(absl::StrCat("--", name, " no longer has any effect")));
  }
}

// "a/b/x" → {"a/b", "x"}; without a slash the folder is ".".
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

bool IsBinaryModel(const std::string& name) {
  for (const char* suffix : {".pt", ".pth", ".ts", ".so"}) {
    if (absl::EndsWith(name, suffix)) return true;
  }
  return false;
}

std::string StripSourceSuffix(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  for (const char* suffix : {".py", ".cc", ".cpp"}) {
    if (absl::EndsWith(path, suffix)) {
      return path.substr(0, path.size() - std::string(suffix).size());
    }
  }
  return path;
}

// A path to a model's source, or to the folder that holds it under the same
// name, as --model_zoo and --model_def.
absl::Status SetModelFromPath(const std::string& flag, const std::string& given,
                              JobFlags* f, FlagSet* set) {
  // Before --model_def changes, which `given` may be.
  const std::string typed = absl::StrCat("--", flag, "=", given);
  const std::string path = StripSourceSuffix(given);
  std::string module;
  if (f->model_zoo.empty()) {
    const auto [folder, base] = SplitPath(path);
    ELASTICDL_RETURN_IF_ERROR(set->Set("model_zoo", folder));
    module = base;
  } else {
    module = path;
    absl::string_view view = module;
    absl::ConsumePrefix(&view, "./");
    module = std::string(view);
  }
  const std::string base = SplitPath(module).second;
  const std::string in_zoo = JoinPath(f->model_zoo, module);
  if (IsDirectory(in_zoo) && !FileExists(absl::StrCat(in_zoo, ".cc"))) {
    absl::StrAppend(&module, "/", base);
  }
  if (absl::StrContains(module, '.')) {
    return absl::InvalidArgumentError(absl::StrCat(
        typed,
        " has dots in it, use --model_zoo=DIR --model_def=name.custom_model"));
  }
  const std::string symbol =
      f->legacy.model_class.empty() ? kDefaultSymbol : f->legacy.model_class;
  ELASTICDL_RETURN_IF_ERROR(set->Set(
      "model_def",
      absl::StrCat(absl::StrReplaceAll(module, {{"/", "."}}), ".", symbol)));
  set->AddHint(absl::StrCat(typed, " is now --model_zoo=", f->model_zoo,
                            " --model_def=", f->model_def));
  return absl::OkStatus();
}

// An image that `zoo build` made has its models in one place.
absl::Status DefaultModelZoo(JobFlags* f, FlagSet* set) {
  const std::string& model =
      f->legacy.model_file.empty() ? f->model_def : f->legacy.model_file;
  if (f->image.empty() || !f->model_zoo.empty() || model.empty() ||
      absl::StartsWith(model, "/")) {
    return absl::OkStatus();
  }
  return set->Set("model_zoo", kZooInImage);
}

absl::Status TranslateModel(JobFlags* f, FlagSet* set) {
  JobFlags::Legacy* old = &f->legacy;
  if (!old->model_file.empty()) {
    if (set->IsSet("model_def")) {
      return absl::InvalidArgumentError(
          "--model_file and --model_def are given, one of them is enough");
    }
    if (IsBinaryModel(old->model_file)) {
      ELASTICDL_RETURN_IF_ERROR(set->Set("model_def", old->model_file));
    } else {
      ELASTICDL_RETURN_IF_ERROR(
          SetModelFromPath("model_file", old->model_file, f, set));
    }
  } else if (!IsBinaryModel(f->model_def) &&
             (absl::StrContains(f->model_def, '/') ||
              absl::EndsWith(f->model_def, ".cc") ||
              absl::EndsWith(f->model_def, ".py"))) {
    ELASTICDL_RETURN_IF_ERROR(
        SetModelFromPath("model_def", f->model_def, f, set));
  } else if (!old->model_class.empty() && !f->model_def.empty()) {
    const size_t dot = f->model_def.rfind('.');
    const std::string module = f->model_def.substr(0, dot);
    ELASTICDL_RETURN_IF_ERROR(
        set->Set("model_def", absl::StrCat(module, ".", old->model_class)));
    set->AddHint(
        absl::StrCat("--model_class is now the last part of "
                     "--model_def=",
                     f->model_def));
  }
  return absl::OkStatus();
}

absl::Status TranslateRecordsPerTask(JobFlags* f, FlagSet* set) {
  const int64_t records = f->legacy.records_per_task;
  if (records == 0) return absl::OkStatus();
  if (set->IsSet("num_minibatches_per_task")) {
    set->AddHint(
        "--records_per_task has no effect together with "
        "--num_minibatches_per_task");
    return absl::OkStatus();
  }
  const int64_t batches =
      records / f->minibatch_size + (records % f->minibatch_size != 0);
  set->AddHint(absl::StrCat("--records_per_task=", records,
                            " is now --num_minibatches_per_task=", batches));
  return set->Set("num_minibatches_per_task", absl::StrCat(batches));
}

absl::Status TranslateVolume(JobFlags* f, FlagSet* set) {
  const JobFlags::Legacy& old = f->legacy;
  if (old.volume_name.empty() && old.mount_path.empty()) {
    return absl::OkStatus();
  }
  if (old.volume_name.empty() || old.mount_path.empty()) {
    return absl::InvalidArgumentError(
        "--volume_name and --mount_path belong together; better use "
        "--volume=claim_name=...,mount_path=...");
  }
  const std::string more = absl::StrCat("claim_name=", old.volume_name,
                                        ",mount_path=", old.mount_path);
  const std::string all =
      f->volume.empty() ? more : absl::StrCat(f->volume, ";", more);
  set->AddHint(
      absl::StrCat("--volume_name, --mount_path are now --volume=", more));
  return set->Set("volume", all);
}

absl::Status TranslateResources(JobFlags* f, FlagSet* set) {
  for (const ResourceFlag& flag : ResourceFlags(f)) {
    if (flag.part->empty()) continue;
    ELASTICDL_ASSIGN_OR_RETURN(Resources resources,
                               ParseResources(*flag.target));
    resources[flag.resource] = *flag.part;
    ELASTICDL_RETURN_IF_ERROR(
        set->Set(flag.target_name, FormatResources(resources)));
    set->AddHint(absl::StrCat("--", flag.name, " is now --", flag.target_name,
                              "=", *flag.target));
  }
  return absl::OkStatus();
}

// The programs of the job need not know how its image came to be.
absl::Status TranslateImage(JobFlags* f, FlagSet* set) {
  set->Unset("docker_image_prefix");
  set->Unset("image_base");
  if (!f->image.empty()) {
    if (!f->docker_image_prefix.empty() || !f->image_base.empty()) {
      set->AddHint(
          "--docker_image_prefix and --image_base have no effect "
          "together with --image: that image exists already");
    }
    f->docker_image_prefix.clear();
    f->image_base.clear();
    return absl::OkStatus();
  }
  if (f->image_base.empty() || !f->docker_image_prefix.empty()) {
    return absl::OkStatus();
  }
  set->AddHint(
      "--image_base without --docker_image_prefix is now --image: the "
      "image is used as it is");
  return set->Set("image", f->image_base);
}

absl::Status TranslateTrainingLoop(JobFlags* f, FlagSet* set) {
  if (!set->IsSet("custom_training_loop")) return absl::OkStatus();
  const char* value = f->legacy.custom_training_loop ? "false" : "true";
  set->AddHint(absl::StrCat(
      "--custom_training_loop is now --need_elasticdl_job_service=", value,
      " with --job_command"));
  return set->Set("need_elasticdl_job_service", value);
}

}  // namespace

void AddLegacyFlags(bool has_training, JobFlags* flags, FlagSet* set) {
  AddTranslated(flags, set);
  if (has_training) {
    set->Add("custom_training_loop", &flags->legacy.custom_training_loop,
             Old());
  }
  AddImage(flags, set);
  AddIgnored(flags, set);
}

absl::Status TranslateLegacyFlags(JobFlags* flags, FlagSet* set) {
  ELASTICDL_RETURN_IF_ERROR(TranslateImage(flags, set));
  ELASTICDL_RETURN_IF_ERROR(DefaultModelZoo(flags, set));
  ELASTICDL_RETURN_IF_ERROR(TranslateModel(flags, set));
  ELASTICDL_RETURN_IF_ERROR(TranslateRecordsPerTask(flags, set));
  ELASTICDL_RETURN_IF_ERROR(TranslateVolume(flags, set));
  ELASTICDL_RETURN_IF_ERROR(TranslateResources(flags, set));
  ELASTICDL_RETURN_IF_ERROR(TranslateTrainingLoop(flags, set));
  for (const FlagSet::Description& flag : set->Describe()) {
    if (flag.info.group == kOld) set->Unset(flag.name);
  }
  // What is passed on (FlagSet::Pack) has present names only.
  flags->legacy = JobFlags::Legacy();
  flags->ignored.clear();
  flags->ignored_bool = false;
  return absl::OkStatus();
}

}  // namespace elasticdl::flags
