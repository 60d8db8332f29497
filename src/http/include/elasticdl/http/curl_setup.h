// The options of a libcurl handle. Public for the one library that runs
// libcurl's transfers itself, kubernetes-client/c. `easy` is a CURL*, which is
// a void*: libcurl's header is not needed here.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "elasticdl/http/client.h"

namespace elasticdl::http {

// Call it before anything else of libcurl. Thread-safe.
void InitCurl();

// Everything about the connection except server.connect_to: timeouts, trust,
// proxy, socket.
void SetServer(void* easy, const Server& server);

void SetLogin(void* easy, const Login& login);

// Why a transfer failed; `code` is a CURLcode, `details` libcurl's own words.
absl::Status TransferError(int code, const std::string& details);

}  // namespace elasticdl::http
