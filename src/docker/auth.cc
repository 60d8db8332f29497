#include "auth.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "credential_helper.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/status.h"
#include "json_field.h"

namespace elasticdl::docker {
namespace {

// The name under which `docker login` stores Docker Hub.
constexpr char kDockerHubServer[] = "https://index.docker.io/v1/";
// A helper may ask the user to unlock a key ring, or a cloud for a token.
constexpr absl::Duration kHelperTimeout = absl::Minutes(2);

// "https://host:1/v1/" → "host:1".
std::string HostOf(absl::string_view server) {
  if (!absl::ConsumePrefix(&server, "https://")) {
    absl::ConsumePrefix(&server, "http://");
  }
  return std::string(server.substr(0, server.find('/')));
}

// With padding, which the engine wants and absl's web-safe form lacks.
std::string Encode(const nlohmann::json& object) {
  const std::string text = JsonText(object);
  return absl::StrReplaceAll(absl::Base64Escape(text),
                             {{"+", "-"}, {"/", "_"}});
}

nlohmann::json FromHelper(const HelperAnswer& answer,
                          const std::string& server) {
  if (answer.secret.empty()) return nlohmann::json::object();
  // A token instead of a password, by the helpers' convention.
  if (answer.user == "<token>") {
    return {{"identitytoken", answer.secret}, {"serveraddress", server}};
  }
  return {{"username", answer.user},
          {"password", answer.secret},
          {"serveraddress", server}};
}

nlohmann::json FromEntry(const nlohmann::json& entry,
                         const std::string& server) {
  nlohmann::json result = nlohmann::json::object();
  std::string user = StringField(entry, "username");
  std::string password = StringField(entry, "password");
  std::string pair;
  if (absl::Base64Unescape(StringField(entry, "auth"), &pair)) {
    const size_t colon = pair.find(':');
    if (colon != std::string::npos) {
      user = pair.substr(0, colon);
      password = pair.substr(colon + 1);
      // Old versions of `docker login` padded it with zeros.
      while (!password.empty() && password.back() == '\0') password.pop_back();
    }
  }
  const std::string token = StringField(entry, "identitytoken");
  if (!token.empty()) {
    result["identitytoken"] = token;
  } else if (!user.empty()) {
    result["username"] = user;
    result["password"] = password;
  }
  if (!result.empty()) result["serveraddress"] = server;
  return result;
}

}  // namespace

RegistryAuth::RegistryAuth() = default;
RegistryAuth::~RegistryAuth() = default;
RegistryAuth::RegistryAuth(RegistryAuth&&) noexcept = default;
RegistryAuth& RegistryAuth::operator=(RegistryAuth&&) noexcept = default;

absl::StatusOr<RegistryAuth> RegistryAuth::Read(const std::string& config_dir,
                                                const std::string& path) {
  RegistryAuth auth;
  auth.path_ = path;
  auth.config_ = std::make_unique<nlohmann::json>(nlohmann::json::object());
  const std::string file = JoinPath(config_dir, "config.json");
  absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return auth;
  if (!text.ok()) return text.status();
  *auth.config_ = ParseJson(*text);
  if (!auth.config_->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " is not a JSON object"));
  }
  return auth;
}

absl::StatusOr<nlohmann::json> RegistryAuth::Find(
    const std::string& server, absl::Duration timeout) const {
  const std::string host = HostOf(server);
  const nlohmann::json helpers = ObjectField(*config_, "credHelpers");
  std::string helper = StringField(helpers, server.c_str());
  if (helper.empty()) helper = StringField(helpers, host.c_str());
  if (helper.empty()) helper = StringField(*config_, "credsStore");
  if (!helper.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(
        const HelperAnswer answer,
        AskCredentialHelper(helper, server, path_, timeout));
    return FromHelper(answer, server);
  }
  const nlohmann::json auths = ObjectField(*config_, "auths");
  if (const auto it = auths.find(server); it != auths.end()) {
    return FromEntry(*it, server);
  }
  for (const auto& [key, entry] : auths.items()) {
    if (HostOf(key) == host) return FromEntry(entry, server);
  }
  return nlohmann::json::object();
}

absl::StatusOr<std::string> RegistryAuth::PushHeader(
    const std::string& registry) const {
  const std::string server =
      registry == "docker.io" ? kDockerHubServer : registry;
  ELASTICDL_ASSIGN_OR_RETURN(const nlohmann::json found,
                             Find(server, kHelperTimeout));
  return Encode(found);
}

std::vector<std::string> RegistryAuth::Servers() const {
  // Servers whose password is in a store have an empty entry in `auths`.
  std::set<std::string> servers;
  for (const char* key : {"auths", "credHelpers"}) {
    const nlohmann::json entries = ObjectField(*config_, key);
    for (const auto& [server, entry] : entries.items()) {
      // Where `docker login` with a browser keeps its tokens: no registries.
      if (absl::EndsWith(server, "/access-token") ||
          absl::EndsWith(server, "/refresh-token")) {
        continue;
      }
      servers.insert(server);
    }
  }
  return {servers.begin(), servers.end()};
}

absl::StatusOr<std::string> RegistryAuth::LoginBody(
    const std::string& server, absl::Duration timeout) const {
  ELASTICDL_ASSIGN_OR_RETURN(const nlohmann::json found, Find(server, timeout));
  if (!found.empty()) return JsonText(found);
  return absl::NotFoundError(absl::StrCat("no credentials for ", server));
}

std::string RegistryAuth::BuildHeader() const {
  nlohmann::json all = nlohmann::json::object();
  for (const std::string& server : Servers()) {
    const absl::StatusOr<nlohmann::json> found = Find(server, kHelperTimeout);
    if (found.ok() && !found->empty()) all[server] = *found;
  }
  return Encode(all);
}

}  // namespace elasticdl::docker
