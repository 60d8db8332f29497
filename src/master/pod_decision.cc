#include "pod_decision.h"

namespace elasticdl::master {

const char* PodDecisionKindName(PodDecision::Kind kind) {
  switch (kind) {
    case PodDecision::Kind::kCreate:
      return "create";
    case PodDecision::Kind::kDelete:
      return "delete";
    case PodDecision::Kind::kEnded:
      return "ended";
    case PodDecision::Kind::kDelayed:
      return "delayed";
    case PodDecision::Kind::kGaveUp:
      return "gave_up";
  }
  return "unknown";
}

}  // namespace elasticdl::master
