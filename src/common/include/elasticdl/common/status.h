// Status vocabulary and the macros that propagate it. docs/errors.md says which
// code means what to a caller.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace elasticdl {

// The same code and payloads with "context: " before the message. OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Status of a failed system call: maps errno to a code and appends its text.
absl::Status ErrnoToStatus(int error, absl::string_view context);

// gRPC and absl codes are numerically equal; these two are the only casts.
// RpcStatus is grpc::Status (a template parameter, so that this header does not
// need gRPC).
template <typename RpcStatus>
RpcStatus ToRpc(const absl::Status& status) {
  if (status.ok()) return RpcStatus();
  using Code = decltype(RpcStatus().error_code());
  return RpcStatus(static_cast<Code>(static_cast<int>(status.code())),
                   std::string(status.message()));
}
template <typename RpcStatus>
absl::Status FromRpc(const RpcStatus& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(
      static_cast<absl::StatusCode>(static_cast<int>(status.error_code())),
      status.error_message());
}

}  // namespace elasticdl

#define ELASTICDL_RETURN_IF_ERROR(expr)                                     \
  do {                                                                      \
    if (absl::Status elasticdl_status_ = (expr); !elasticdl_status_.ok()) { \
      return elasticdl_status_;                                             \
    }                                                                       \
  } while (false)

#define ELASTICDL_CONCAT_INNER(a, b) a##b
#define ELASTICDL_CONCAT(a, b) ELASTICDL_CONCAT_INNER(a, b)
#define ELASTICDL_ASSIGN_OR_RETURN(lhs, expr) \
  ELASTICDL_ASSIGN_OR_RETURN_IMPL(            \
      ELASTICDL_CONCAT(elasticdl_statusor_, __LINE__), lhs, expr)
// `lhs` may be a declaration, which takes no parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ELASTICDL_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                    \
  if (!tmp.ok()) return tmp.status();                   \
  lhs = std::move(tmp).value()
// NOLINTEND(bugprone-macro-parentheses)
