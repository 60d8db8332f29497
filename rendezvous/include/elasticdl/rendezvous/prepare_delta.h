// The list of a world's members, told by what has changed since the last one:
// otherwise a world of n members would cost n lists of n members.
#pragma once

#include "absl/status/status.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::rendezvous {

// `next` for somebody who knows `base`. Both have all their members. Pure.
v1::Prepare ShortenPrepare(const v1::Prepare& base, const v1::Prepare& next);

// Makes a shortened `prepare` complete; leaves a complete one alone. `base` is
// the last complete one of the same stream. FAILED_PRECONDITION if it refers to
// another one, INVALID_ARGUMENT if it has ranks that are not in it.
absl::Status CompletePrepare(const v1::Prepare& base, v1::Prepare& prepare);

}  // namespace elasticdl::rendezvous
