#include "cluster/spec_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "elasticdl/cluster/cluster_spec.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/yaml_json.h"
#include "elasticdl/process.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

// A user's file that takes longer is assumed to hang.
constexpr absl::Duration kPatience = absl::Minutes(2);
// The driver's exit code when the package is missing.
constexpr int kNoPackage = 66;
// Enough for a traceback.
constexpr size_t kShownErrorBytes = 2000;

// argv: the user's file, the input and the output file. The package turns JSON
// into its objects and back; the user's file changes them.
constexpr char kDriver[] = R"(
import importlib.util, json, os, sys
try:
    from kubernetes import client
except ImportError as error:
    sys.stderr.write(str(error))
    sys.exit(66)

path, source, target = sys.argv[1:4]
sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
spec = importlib.util.spec_from_file_location("elasticdl_cluster_spec", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
cluster = getattr(module, "cluster", None)
if cluster is None:
    sys.exit("it defines no object named cluster")

class Response:
    def __init__(self, data):
        self.data = json.dumps(data)

api = client.ApiClient()

def change(name, method, kind, data):
    if not hasattr(cluster, method):
        return data
    changed = getattr(cluster, method)(api.deserialize(Response(data), kind))
    if changed is None:
        sys.exit("cluster.%s returned nothing for %s" % (method, name))
    return api.sanitize_for_serialization(changed)

with open(source) as file:
    objects = json.load(file)
for name in objects:
    if name == "service":
        objects[name] = change(name, "with_service", "V1Service", objects[name])
    else:
        objects[name] = change(name, "with_pod", "V1Pod", objects[name])
with open(target, "w") as file:
    json.dump(objects, file)
)";

// A folder that only this user can read: variables may be secrets.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "elasticdl-spec-XXXXXX")
            .string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~PrivateFolder() {
    if (!path_.empty()) RemoveTree(path_).IgnoreError();
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  bool valid() const { return !path_.empty(); }
  std::string Path(const std::string& name) const {
    return JoinPath(path_, name);
  }

 private:
  std::string path_;
};

absl::Status NoPython(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "--cluster_spec=", path, " is Python, but ", why,
      "; either install python3 with the package kubernetes (apt-get install "
      "python3-kubernetes, or pip install kubernetes), or write a YAML file "
      "with the keys of --cluster_spec_json (docs/kubernetes.md)"));
}

// Every python3 in the PATH, in order: that of a virtual environment may lack
// the package that the system's has.
std::vector<std::string> Pythons(const std::vector<std::string>& environment) {
  std::vector<std::string> found;
  for (absl::string_view entry : environment) {
    if (!absl::ConsumePrefix(&entry, "PATH=")) continue;
    found.clear();
    for (absl::string_view folder :
         absl::StrSplit(entry, ':', absl::SkipEmpty())) {
      const std::string file = JoinPath(folder, "python3");
      if (access(file.c_str(), X_OK) == 0) found.push_back(file);
    }
  }
  return found;
}

// How the driver ended in this Python.
absl::StatusOr<process::RunResult> RunDriver(
    const std::string& python, const std::string& path,
    const std::vector<std::string>& environment, const PrivateFolder& folder) {
  process::RunOptions options;
  options.argv = {python,
                  "-c",
                  kDriver,
                  path,
                  folder.Path("in.json"),
                  folder.Path("out.json")};
  options.environment = environment;
  // No __pycache__ beside the user's file.
  options.environment.push_back("PYTHONDONTWRITEBYTECODE=1");
  options.timeout = kPatience;
  return process::Run(options);
}

absl::Status RunPython(const std::string& path,
                       const std::vector<std::string>& environment,
                       const PrivateFolder& folder) {
  const std::vector<std::string> pythons = Pythons(environment);
  if (pythons.empty()) {
    return NoPython(path, "there is no python3 in the PATH");
  }
  const std::string what = absl::StrCat("--cluster_spec=", path);
  std::string missing;
  for (const std::string& python : pythons) {
    const absl::StatusOr<process::RunResult> result =
        RunDriver(python, path, environment, folder);
    if (!result.ok()) return Annotate(result.status(), what);
    if (result->code == 0) return absl::OkStatus();
    const std::string words = process::LastWords(
        absl::StrCat(result->output, result->error), kShownErrorBytes);
    if (result->code != kNoPackage) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": ", words));
    }
    missing = words;
  }
  return NoPython(
      path, absl::StrCat(absl::StrJoin(pythons, ", "),
                         " lacks the package kubernetes (", missing, ")"));
}

bool IsPod(const Json& object) {
  return object.is_object() && object.contains("spec") &&
         object["spec"].is_object() && object["spec"].contains("containers") &&
         object["spec"]["containers"].is_array() &&
         !object["spec"]["containers"].empty();
}

absl::Status ReadAnswer(const std::string& file, const std::string& path,
                        cluster::JobObjects* objects) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  Json answer = ParseJson(text);
  const std::pair<const char*, Json*> kParts[] = {
      {"service", &objects->service},
      {"master", &objects->master_pod},
      {"worker", &objects->worker_pod},
      {"ps", &objects->ps_pod}};
  for (const auto& [name, target] : kParts) {
    const bool is_service = target == &objects->service;
    if (!answer.is_object() || !answer.contains(name) ||
        (is_service ? !answer[name].is_object() : !IsPod(answer[name]))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--cluster_spec=", path, ": what it returned for ", name, " is no ",
          is_service ? "Service" : "Pod with a container"));
    }
    *target = std::move(answer[name]);
  }
  return absl::OkStatus();
}

absl::Status ApplyPython(const std::string& path,
                         const std::vector<std::string>& environment,
                         cluster::JobObjects* objects) {
  const PrivateFolder folder;
  if (!folder.valid()) return ErrnoToStatus(errno, "temporary folder");
  const Json input = {{"service", objects->service},
                      {"master", objects->master_pod},
                      {"worker", objects->worker_pod},
                      {"ps", objects->ps_pod}};
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(folder.Path("in.json"), JsonText(input), 0600));
  ELASTICDL_RETURN_IF_ERROR(RunPython(path, environment, folder));
  return ReadAnswer(folder.Path("out.json"), path, objects);
}

}  // namespace

absl::Status ApplyClusterSpecFile(const std::string& path,
                                  const std::vector<std::string>& environment,
                                  cluster::JobObjects* objects) {
  const std::string what = absl::StrCat("--cluster_spec=", path);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Annotate(text.status(), "--cluster_spec");
  if (absl::EndsWith(path, ".py")) {
    return ApplyPython(path, environment, objects);
  }
  const absl::StatusOr<Json> spec = flags::JsonFromYaml(*text);
  if (!spec.ok()) return Annotate(spec.status(), what);
  return Annotate(cluster::ApplyClusterSpec(*spec, objects), what);
}

}  // namespace elasticdl::cli
