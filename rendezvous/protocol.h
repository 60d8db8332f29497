// Master and worker must have the same version.
#pragma once

namespace elasticdl::rendezvous {

// Metadata key of a worker's kProtocolVersion. Not part of a message, because
// messages of another version may have a different meaning.
inline constexpr char kVersionKey[] = "elasticdl-version";

// Increase the number with each change to the messages between master and
// worker, or to what workers send each other (offers, control word, state).
inline constexpr char kProtocolVersion[] = ELASTICDL_VERSION " (protocol 14)";

}  // namespace elasticdl::rendezvous
