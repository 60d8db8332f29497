// Parts of AddJobFlags that live in files of their own.
#pragma once

#include "elasticdl/flags/flag_set.h"
#include "elasticdl/flags/job_flags.h"

namespace elasticdl::flags {

// Flags that act on a Kubernetes cluster.
void AddClusterFlags(JobFlags* flags, FlagSet* set);

// Old flags that are not mere renames of present ones: those that
// TranslateLegacyFlags translates and those that have no effect any more.
// `has_training`: the flags of train are there to be translated to.
void AddLegacyFlags(bool has_training, JobFlags* flags, FlagSet* set);

}  // namespace elasticdl::flags
