// Access rights: those that a job needs, and advice when they are missing.
// Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cluster {

// Two accounts need different rights: the service account of the master pod
// creates pods; users of `elasticdl` create and query jobs.
enum class Party { kMaster, kClient };

// One right in a namespace.
struct Right {
  std::string verb;
  std::string resource;  // "pods", "pods/log"
  std::string group;     // "" = the core API
};
// Those without which the party cannot do its work.
std::vector<Right> RightsOf(Party party);

// Who gets the rights.
struct Subject {
  // A user's name; "" = it is a service account.
  std::string user;
  std::string account;
  std::string account_namespace;
};
// As the server names it: ann, system:serviceaccount:team:trainer.
std::string UserName(const Subject& subject);

// Role `elasticdl-job` or `elasticdl-client`, and a RoleBinding for one
// subject. Each subject has a binding of its own, so that granting rights to
// one takes them from nobody.
Json MakeRole(Party party, const std::string& namespace_name);
Json MakeRoleBinding(Party party, const std::string& namespace_name,
                     const Subject& subject);

// Questions to the server, answered in /status/allowed: may I, may this service
// account of the namespace?
Json MakeSelfReview(const Right& right, const std::string& namespace_name);
Json MakeAccountReview(const Right& right, const std::string& namespace_name,
                       const std::string& account);

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

// The command by which somebody who may gives `subject` all rights of the
// party.
std::string GrantCommand(Party party, const std::string& namespace_name,
                         const Subject& subject);

// One sentence that names the verb and the resource, and the command that
// grants the party what it needs; or the priority class that does not exist.
// The server's own words when they are not understood.
std::string ExplainForbidden(const std::string& message, Party party);

}  // namespace elasticdl::cluster
