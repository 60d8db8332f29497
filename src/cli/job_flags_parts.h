// Parts of AddJobFlags that live in files of their own.
#pragma once

#include "flag_set.h"
#include "job_flags.h"

namespace elasticdl::cli {

// The group of AddClusterFlags in the help.
inline constexpr char kClusterGroup[] = "Cluster (with --image_name)";

// Flags that act on a Kubernetes cluster.
void AddClusterFlags(JobFlags* flags, FlagSet* set);

// Old flags that are not mere renames of present ones: those that
// TranslateLegacyFlags translates and those that have no effect any more.
// `has_training`: the flags of train are there to be translated to.
void AddLegacyFlags(bool has_training, JobFlags* flags, FlagSet* set);

}  // namespace elasticdl::cli
