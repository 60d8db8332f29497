#include "kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"

namespace elasticdl::kube {
namespace {

// A mapping in a file, with its description for errors. Thread-compatible.
class Entry {
 public:
  Entry() = default;
  // `what`: "cluster \"minikube\"".
  Entry(const YAML::Node& node, std::string file, std::string what)
      : node_(node), file_(std::move(file)), what_(std::move(what)) {}

  absl::Status Error(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ": ", what_, ": ", why));
  }

  bool Has(const char* key) const {
    const YAML::Node value = node_[key];
    return value.IsDefined() && !value.IsNull();
  }

  // Empty when it is missing.
  absl::StatusOr<std::string> Text(const char* key) const {
    if (!Has(key)) return std::string();
    if (!node_[key].IsScalar()) {
      return Error(absl::StrCat(key, " is no text"));
    }
    return node_[key].Scalar();
  }

  absl::StatusOr<bool> Flag(const char* key) const {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string text, Text(key));
    if (text.empty() || text == "false") return false;
    if (text == "true") return true;
    return Error(absl::StrCat(key, " is \"", text, "\", not true or false"));
  }

  // `key` names a file, relative to the folder of this one.
  absl::StatusOr<std::string> Path(const char* key) const {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string path, Text(key));
    return path.empty() ? path : Resolve(path);
  }

  std::string Resolve(const std::string& path) const {
    if (absl::StartsWith(path, "/")) return path;
    const size_t slash = file_.rfind('/');
    return slash == std::string::npos ? path
                                      : JoinPath(file_.substr(0, slash), path);
  }

  // The content of base64 `key`-data or else of the file that `key` names.
  absl::StatusOr<std::string> Content(const std::string& key) const {
    const std::string data_key = key + "-data";
    ELASTICDL_ASSIGN_OR_RETURN(const std::string data, Text(data_key.c_str()));
    if (!data.empty()) {
      std::string content;
      if (!absl::Base64Unescape(data, &content)) {
        return Error(absl::StrCat(data_key, " is not base64"));
      }
      return content;
    }
    ELASTICDL_ASSIGN_OR_RETURN(const std::string path, Path(key.c_str()));
    if (path.empty()) return std::string();
    absl::StatusOr<std::string> content = ReadFile(path);
    if (!content.ok()) {
      return Error(absl::StrCat(key, ": ", content.status().message()));
    }
    return content;
  }

  // The mapping below `key`; an empty one when it is missing.
  absl::StatusOr<Entry> Below(const char* key) const {
    YAML::Node below = node_[key];
    if (!below.IsDefined() || below.IsNull()) {
      below = YAML::Node(YAML::NodeType::Map);
    }
    if (!below.IsMap()) return Error(absl::StrCat(key, " is no mapping"));
    return Entry(below, file_, what_);
  }

  absl::StatusOr<std::vector<YAML::Node>> List(const char* key) const {
    std::vector<YAML::Node> items;
    if (!Has(key)) return items;
    if (!node_[key].IsSequence()) {
      return Error(absl::StrCat(key, " is no list"));
    }
    for (const YAML::Node& item : node_[key]) items.push_back(item);
    return items;
  }

  const std::string& file() const { return file_; }

 private:
  YAML::Node node_{YAML::NodeType::Map};
  std::string file_;
  std::string what_;
};

using Entries = std::map<std::string, Entry>;

struct Merged {
  Entries clusters;
  Entries users;
  Entries contexts;
  std::string current_context;
  std::vector<std::string> files;
};

// Adds the entries of `list` (clusters, …) of a file whose names are new.
absl::Status MergeList(const Entry& root, const char* list, const char* kind,
                       Entries& entries) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<YAML::Node> items,
                             root.List(list));
  for (const YAML::Node& item : items) {
    if (!item.IsMap() || !item["name"].IsDefined() ||
        !item["name"].IsScalar()) {
      return root.Error(absl::StrCat("an entry of ", list, " has no name"));
    }
    const std::string name = item["name"].Scalar();
    const Entry named(item, root.file(), absl::StrCat(kind, " \"", name, "\""));
    ELASTICDL_ASSIGN_OR_RETURN(Entry content, named.Below(kind));
    entries.emplace(name, std::move(content));
  }
  return absl::OkStatus();
}

absl::Status MergeFile(const std::string& file, const std::string& text,
                       Merged& merged) {
  const YAML::Node node = YAML::Load(text);
  merged.files.push_back(file);
  if (node.IsNull()) return absl::OkStatus();
  const Entry root(node, file, "kubeconfig");
  if (!node.IsMap()) return root.Error("is no mapping");
  ELASTICDL_RETURN_IF_ERROR(
      MergeList(root, "clusters", "cluster", merged.clusters));
  ELASTICDL_RETURN_IF_ERROR(MergeList(root, "users", "user", merged.users));
  ELASTICDL_RETURN_IF_ERROR(
      MergeList(root, "contexts", "context", merged.contexts));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string current,
                             root.Text("current-context"));
  if (merged.current_context.empty()) merged.current_context = current;
  return absl::OkStatus();
}

absl::Status ReadCluster(const Entry& entry, ClusterConfig& config) {
  ELASTICDL_ASSIGN_OR_RETURN(config.server, entry.Text("server"));
  if (!absl::StartsWith(config.server, "https://") &&
      !absl::StartsWith(config.server, "http://")) {
    return entry.Error(absl::StrCat("server \"", config.server,
                                    "\" does not begin with https://"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(config.ca_pem,
                             entry.Content("certificate-authority"));
  ELASTICDL_ASSIGN_OR_RETURN(config.insecure_skip_tls_verify,
                             entry.Flag("insecure-skip-tls-verify"));
  if (config.insecure_skip_tls_verify && !config.ca_pem.empty()) {
    return entry.Error(
        "insecure-skip-tls-verify and certificate-authority exclude each "
        "other");
  }
  ELASTICDL_ASSIGN_OR_RETURN(config.tls_server_name,
                             entry.Text("tls-server-name"));
  ELASTICDL_ASSIGN_OR_RETURN(config.proxy_url, entry.Text("proxy-url"));
  return absl::OkStatus();
}

absl::Status ReadExecLists(const Entry& exec, ExecPlugin& plugin) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<YAML::Node> args,
                             exec.List("args"));
  for (const YAML::Node& arg : args) {
    if (!arg.IsScalar()) return exec.Error("exec: an argument is not a string");
    plugin.args.push_back(arg.Scalar());
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<YAML::Node> env,
                             exec.List("env"));
  for (const YAML::Node& item : env) {
    if (!item.IsMap() || !item["name"].IsDefined() ||
        !item["name"].IsScalar() || !item["value"].IsDefined()) {
      return exec.Error("exec: an entry of env has no name and value");
    }
    plugin.env.emplace_back(item["name"].Scalar(), item["value"].IsScalar()
                                                       ? item["value"].Scalar()
                                                       : "");
  }
  return absl::OkStatus();
}

absl::Status ReadExec(const Entry& exec, ExecPlugin& plugin) {
  ELASTICDL_ASSIGN_OR_RETURN(plugin.api_version, exec.Text("apiVersion"));
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    return exec.Error(absl::StrCat(
        "exec: apiVersion \"", plugin.api_version,
        "\" is not client.authentication.k8s.io/v1 or .../v1beta1"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(plugin.command, exec.Text("command"));
  if (plugin.command.empty()) return exec.Error("exec: no command");
  // A bare name is looked up in PATH, any other path is relative to the file.
  if (absl::StrContains(plugin.command, '/')) {
    plugin.command = exec.Resolve(plugin.command);
  }
  ELASTICDL_ASSIGN_OR_RETURN(plugin.install_hint, exec.Text("installHint"));
  ELASTICDL_ASSIGN_OR_RETURN(plugin.provide_cluster_info,
                             exec.Flag("provideClusterInfo"));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string interactive,
                             exec.Text("interactiveMode"));
  if (interactive == "Always") {
    return exec.Error(
        "exec: interactiveMode Always is not supported: log in by hand first");
  }
  return ReadExecLists(exec, plugin);
}

absl::Status ReadUser(const Entry& entry, ClusterConfig& config) {
  for (const char* key : {"as", "as-uid", "as-groups", "as-user-extra"}) {
    if (entry.Has(key)) {
      return entry.Error(absl::StrCat(key, ": impersonation is not supported"));
    }
  }
  if (entry.Has("auth-provider")) {
    return entry.Error(
        "auth-provider is not supported: use an exec login program (GKE: "
        "gke-gcloud-auth-plugin)");
  }
  ELASTICDL_ASSIGN_OR_RETURN(config.client_cert_pem,
                             entry.Content("client-certificate"));
  ELASTICDL_ASSIGN_OR_RETURN(config.client_key_pem,
                             entry.Content("client-key"));
  if (config.client_cert_pem.empty() != config.client_key_pem.empty()) {
    return entry.Error(
        "client-certificate and client-key only make sense together");
  }
  ELASTICDL_ASSIGN_OR_RETURN(config.token, entry.Text("token"));
  if (config.token.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(config.token_file, entry.Path("tokenFile"));
  }
  ELASTICDL_ASSIGN_OR_RETURN(config.username, entry.Text("username"));
  ELASTICDL_ASSIGN_OR_RETURN(config.password, entry.Text("password"));
  if (!entry.Has("exec")) return absl::OkStatus();
  if (!config.token.empty() || !config.token_file.empty() ||
      !config.username.empty() || !config.client_cert_pem.empty()) {
    return entry.Error("exec and other credentials exclude each other");
  }
  ELASTICDL_ASSIGN_OR_RETURN(const Entry exec, entry.Below("exec"));
  return ReadExec(exec, config.exec);
}

std::string Names(const Entries& entries) {
  if (entries.empty()) return "there is none";
  return absl::StrCat(
      "there are: ",
      absl::StrJoin(entries, ", ", [](std::string* out, const auto& entry) {
        out->append(entry.first);
      }));
}

absl::StatusOr<ClusterConfig> Choose(const Merged& merged,
                                     const std::string& wanted) {
  const std::string name = wanted.empty() ? merged.current_context : wanted;
  const std::string files = absl::StrJoin(merged.files, ":");
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        files, ": no current-context; contexts: ", Names(merged.contexts)));
  }
  const auto context = merged.contexts.find(name);
  if (context == merged.contexts.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        files, ": no context \"", name, "\"; ", Names(merged.contexts)));
  }
  const Entry& entry = context->second;
  ClusterConfig config;
  config.origin = absl::StrCat("context ", name, " of ", entry.file());
  ELASTICDL_ASSIGN_OR_RETURN(const std::string cluster_name,
                             entry.Text("cluster"));
  const auto cluster = merged.clusters.find(cluster_name);
  if (cluster == merged.clusters.end()) {
    return entry.Error(absl::StrCat("no cluster \"", cluster_name, "\"; ",
                                    Names(merged.clusters)));
  }
  ELASTICDL_RETURN_IF_ERROR(ReadCluster(cluster->second, config));
  ELASTICDL_ASSIGN_OR_RETURN(const std::string user_name, entry.Text("user"));
  if (!user_name.empty()) {
    const auto user = merged.users.find(user_name);
    if (user == merged.users.end()) {
      return entry.Error(
          absl::StrCat("no user \"", user_name, "\"; ", Names(merged.users)));
    }
    ELASTICDL_RETURN_IF_ERROR(ReadUser(user->second, config));
  }
  ELASTICDL_ASSIGN_OR_RETURN(const std::string namespace_name,
                             entry.Text("namespace"));
  if (!namespace_name.empty()) config.namespace_name = namespace_name;
  return config;
}

absl::StatusOr<ClusterConfig> Load(const std::vector<std::string>& files,
                                   const std::string& context,
                                   std::string& current) {
  Merged merged;
  for (const std::string& file : files) {
    current = file;
    const absl::StatusOr<std::string> text = ReadFile(file);
    if (absl::IsNotFound(text.status())) continue;
    ELASTICDL_RETURN_IF_ERROR(text.status());
    ELASTICDL_RETURN_IF_ERROR(MergeFile(file, *text, merged));
  }
  current = absl::StrJoin(files, ":");
  if (merged.files.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no kubeconfig file: ", current, " does not exist"));
  }
  return Choose(merged, context);
}

}  // namespace

absl::StatusOr<ClusterConfig> LoadKubeconfig(
    const std::vector<std::string>& files, const std::string& context) {
  // What is being read when yaml-cpp throws.
  std::string current;
  try {
    return Load(files, context, current);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(current, ": ", error.what()));
  }
}

}  // namespace elasticdl::kube
