// Unary gRPC calls of raw bytes, to compare with: no protobuf, no copies by the
// caller.
#pragma once

#include <cstddef>
#include <functional>

namespace elasticdl::bench {

// A server that takes `there` bytes and answers with `back` bytes, and a client
// in this thread. `measure` is given the call to repeat and runs while the
// server does.
void WithGrpcEcho(
    size_t there, size_t back,
    const std::function<void(const std::function<void()>& call)>& measure);

}  // namespace elasticdl::bench
