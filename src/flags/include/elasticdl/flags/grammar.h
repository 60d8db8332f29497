// Grammars of flag values: pure functions from text to structures. Every error
// is INVALID_ARGUMENT, quotes the bad part and says what is expected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace elasticdl::flags {

// Pairs in the order given.
using KeyValues = std::vector<std::pair<std::string, std::string>>;

// Kubernetes resource name → quantity, e.g. {"cpu": "0.5", "memory": "1Gi"}.
using Resources = std::map<std::string, std::string>;

// `cpu=1,memory=2048Mi,disk=1Gi,gpu=1,…`; "" is no resources. `gpu` becomes
// nvidia.com/gpu and `disk` ephemeral-storage. Spaces around parts are fine,
// duplicates are not.
absl::StatusOr<Resources> ParseResources(absl::string_view text);
// The number behind a quantity that ParseResources accepts ("500m", "4096Mi").
double QuantityValue(absl::string_view quantity);
// Bytes: `2Gi`, `512Mi`, … as in ParseResources; "" and "0" are 0.
absl::StatusOr<int64_t> ParseMemorySize(absl::string_view text);
// The text that ParseResources reads.
std::string FormatResources(const Resources& resources);

struct VolumeMount {
  // One of the two is set.
  std::string claim_name;
  std::string host_path;
  // Kind of the host path ("Directory", …); "" = not checked.
  std::string type;
  std::string mount_path;
  std::string sub_path;
};

// `claim_name=c,mount_path=/data;host_path=/d,type=Directory,mount_path=/d`.
// The key volume_name of 2019 is accepted and has no effect.
absl::StatusOr<std::vector<VolumeMount>> ParseVolumes(absl::string_view text);

// `k1=v1,k2=v2`. Values may hold '=' and commas: a comma begins a new variable
// only when `NAME=` follows it; `\,` never does.
absl::StatusOr<KeyValues> ParseEnvs(absl::string_view text);

// --worker_pod_priority.
struct WorkerPriority {
  // Priority class of the workers that are not in the high share; "" = none.
  std::string base;
  // This share of the workers, the first ids, gets class "high".
  double high_fraction = 0;

  // Class of the worker with original index `index` of `num_workers`.
  std::string ClassOf(int64_t index, int64_t num_workers) const;
};
// "", high, low, a fraction (0.5: half of the workers high, the rest low), the
// older high=0.5, or the name of a PriorityClass for all workers.
absl::StatusOr<WorkerPriority> ParseWorkerPriority(absl::string_view text);

// `k=v;k=v`, spaces around parts dropped, quotes around a value removed; a ';'
// inside quotes or brackets does not separate. `allow_commas`: the form of
// 2019, `k=v,k=v`, too, where a comma separates only if `name=` follows it.
absl::StatusOr<KeyValues> ParseKeyValues(absl::string_view text,
                                         bool allow_commas = false);

struct AuxParams {
  bool disable_relaunch = false;
};
// --aux_params: `disable_relaunch=true` is all there is.
absl::StatusOr<AuxParams> ParseAuxParams(absl::string_view text);

struct HostPort {
  std::string host;
  int port = 0;
};
// `host:port`, `[::1]:port`.
absl::StatusOr<HostPort> ParseAddress(absl::string_view text);
// A comma list of addresses; "" is none.
absl::StatusOr<std::vector<HostPort>> ParseAddresses(absl::string_view text);

// Name of a Kubernetes object: small letters, digits, '-' (and '.' if
// `dots`), at most `max_size` characters. "" is fine.
absl::Status CheckKubeName(absl::string_view text, size_t max_size, bool dots);
// Name of an image, "" included: no spaces, no shell characters.
absl::Status CheckImageName(const std::string& text);
// --populate_env_names: "" or a regular expression.
absl::Status CheckRegex(const std::string& text);
// --cluster_spec_json: "" or an object with keys of its list.
absl::Status CheckClusterSpecJson(const std::string& text);

}  // namespace elasticdl::flags
