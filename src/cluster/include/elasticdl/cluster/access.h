// Who may do what: the rights that a job needs, and what to do without them.
// Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cluster {

// What the master does in its namespace: Role and RoleBinding `elasticdl-job`
// for a service account of that namespace.
Json MakeRole(const std::string& namespace_name);
Json MakeRoleBinding(const std::string& namespace_name,
                     const std::string& service_account);

// What an API server says when it refuses (403).
struct Forbidden {
  std::string user;
  // Set when the user is a service account.
  std::string account_namespace;
  std::string account;
  std::string verb;
  std::string resource;  // "pods", "pods/log"
  std::string namespace_name;
};
// From the server's words ('… User "u" cannot create resource "pods" …').
std::optional<Forbidden> ParseForbidden(const std::string& message);

// One sentence that names the verb and the resource, and the command that
// grants them; the server's own words when they are not understood.
std::string ExplainForbidden(const std::string& message);

}  // namespace elasticdl::cluster
