// The envelope of an offer. It contains generation and rank, so that offers for
// another world are refused, and proves that its sender knows the job's secret.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "elasticdl/collective/communicator.h"

namespace elasticdl::collective {

// `kind` names the backend ("shm"), because members must agree on it.
std::string SealOffer(const WorldSpec& world, absl::string_view kind,
                      absl::string_view payload);

// The payload of the offer that `rank` of `world` made. INVALID_ARGUMENT: not
// an offer, or of another backend or rank; PERMISSION_DENIED: made with another
// secret; FAILED_PRECONDITION: of another generation.
absl::StatusOr<std::string> OpenOffer(const WorldSpec& world, int rank,
                                      absl::string_view kind,
                                      absl::string_view offer);

// INVALID_ARGUMENT unless there is one for each member.
absl::Status CheckNumberOfOffers(const WorldSpec& world,
                                 const std::vector<std::string>& offers);
// The payloads of the offers of all members, by rank. INVALID_ARGUMENT also if
// there are too few or too many.
absl::StatusOr<std::vector<std::string>> OpenOffers(
    const WorldSpec& world, absl::string_view kind,
    const std::vector<std::string>& offers);
// The error for a payload of `rank` that cannot be understood.
absl::Status DamagedOffer(int rank);

// Numbers in the host's byte order: members of a job run on one architecture.
template <typename T>
void AppendRaw(const T& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
// Take a value off the front; false if there are too few bytes.
bool TakeBytes(absl::string_view& in, void* out, size_t count);
template <typename T>
bool TakeRaw(absl::string_view& in, T& value) {
  return TakeBytes(in, &value, sizeof(value));
}
void AppendText(absl::string_view text, std::string& out);
bool TakeText(absl::string_view& in, std::string& text);

}  // namespace elasticdl::collective
